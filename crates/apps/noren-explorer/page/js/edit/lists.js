// Conversion of numbers and positions to the text of fields, and back.

const words = (row, between = /[\s,]+/) => row.split(between).filter(Boolean);

/**
 * Parses rows of numbers: semicolons separate rows, commas or spaces separate numbers. Returns a list for one row, a list of lists for
 * several rows, and null if there is no number.
 */
export function readRows(text) {
  const rows = text.split(";").map((row) => words(row).map(readCount));
  const kept = rows.filter((row) => row.length > 0);
  if (kept.length === 0) return null;
  return kept.length === 1 ? kept[0] : kept;
}

/** Returns numbers as text: commas between numbers, semicolons between batch rows. */
export function writeRows(rows) {
  if (!Array.isArray(rows)) return "";
  return rows.some(Array.isArray) ? rows.map((row) => [row].flat().join(", ")).join("; ") : rows.join(", ");
}

/** Parses a whole number of at least 0. The suffix `k` means 1024, and `M` means 1024^2. */
export function readCount(word) {
  if (word.startsWith("-")) throw new Error(`\`${word}\` is not a whole number of at least 0`);
  return readWhole(word);
}

function readWhole(word) {
  const by = { k: 1024, m: 1024 ** 2 }[word.slice(-1).toLowerCase()];
  const value = by ? Number(word.slice(0, -1)) * by : Number(word);
  if (!/^-?[\d.]+[kKmM]?$/.test(word) || !Number.isSafeInteger(value)) throw new Error(`\`${word}\` is not a whole number`);
  return value;
}

/**
 * Parses positions and ranges such as `3, 10..14`. A semicolon begins the next batch row, which may be empty. Returns a list of positions
 * for one batch row, otherwise a list of lists.
 */
export function readPositions(text) {
  const position = (word) => (/^(\d+\.\.\d*|\.\.\d+)$/.test(word) ? word : readCount(word));
  const rows = text.split(";").map((row) => words(row).map(position));
  return rows.length === 1 ? rows[0] : rows;
}

/** Parses the query offsets of the batch rows. An offset may be negative. */
export const readOffsets = (text) => words(text, /[\s,;]+/).map(readWhole);
