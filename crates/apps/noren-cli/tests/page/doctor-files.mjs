// Files of arrays for tests of the page: npy for one array, safetensors for a mask with other arrays.

/**
 * Returns an array of truth values as an object for `npy` and `safetensors`: `shape`, and `values` in row-major order
 * as a typed array. `bool: true` distinguishes truth values from numbers.
 */
export const bools = (shape, cells) => ({ shape, values: Uint8Array.from(cells, Number), bool: true });
export const floats = (shape, cells) => ({ shape, values: Float32Array.from(cells) });
export const integers = (shape, cells) => ({ shape, values: BigInt64Array.from(cells, BigInt) });

const bytesOf = ({ values }) => new Uint8Array(values.buffer, values.byteOffset, values.byteLength);

const named = (array, [bool, float, integer]) => {
  if (array.bool) return bool;
  return array.values instanceof Float32Array ? float : integer;
};

function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
  return whole;
}

/** Returns the bytes of an npy file (version 1.0) with this array. */
export function npy(array) {
  const type = named(array, ["|b1", "<f4", "<i8"]);
  const shape = array.shape.join(", ") + (array.shape.length === 1 ? "," : "");
  const header = `{'descr': '${type}', 'fortran_order': False, 'shape': (${shape}), }`;
  // Magic, version and length take 10 bytes. The numbers begin after a line break, at a multiple of 64 bytes.
  const space = Math.ceil((10 + header.length + 1) / 64) * 64 - 10;
  const text = new TextEncoder().encode(header.padEnd(space - 1) + "\n");
  const magic = [0x93, ...new TextEncoder().encode("NUMPY"), 1, 0, space & 0xff, space >> 8];
  return joined(Uint8Array.from(magic), text, bytesOf(array));
}

/** Returns the bytes of a safetensors file with these named arrays. */
export function safetensors(arrays) {
  let end = 0;
  const entries = Object.entries(arrays).map(([name, array]) => {
    const start = end;
    end += array.values.byteLength;
    return [name, { dtype: named(array, ["BOOL", "F32", "I64"]), shape: array.shape, data_offsets: [start, end] }];
  });
  const json = JSON.stringify(Object.fromEntries(entries));
  // The numbers begin at a multiple of 8 bytes: blanks at the end of the header are allowed.
  const header = new TextEncoder().encode(json.padEnd(Math.ceil(json.length / 8) * 8));
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(header.length), true);
  return joined(length, header, ...Object.values(arrays).map(bytesOf));
}
