// What ends with a view: requests, timers, and drawings.

let open = new AbortController();

/** Calls `end()` when the view that is now shown is closed. */
export const onClose = (end) => open.signal.addEventListener("abort", end, { once: true });

/** Ends everything that belongs to the shown view. */
export function closeView() {
  open.abort();
  open = new AbortController();
}
