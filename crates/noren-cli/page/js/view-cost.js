export const id = "cost";
export const title = "Cost";

export function mount() {
  return { update() {}, unmount() {} };
}
