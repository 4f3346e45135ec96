export const id = "text";
export const title = "Text";

export function mount() {
  return { update() {}, unmount() {} };
}
