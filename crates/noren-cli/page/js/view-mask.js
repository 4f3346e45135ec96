export const id = "mask";
export const title = "Mask";

export function mount() {
  return { update() {}, unmount() {} };
}
