export const id = "flow";
export const title = "Flow";

export function mount() {
  return { update() {}, unmount() {} };
}
