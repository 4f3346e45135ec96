export const id = "doctor";
export const title = "Doctor";

export function mount() {
  return { update() {}, unmount() {} };
}
