/** Requests to the server of this page. */

/** Something that a person can read, and the cause that the page tells apart. */
export class Problem extends Error {
  /** @param {string} cause @param {string} [detail] */
  constructor(cause, detail = "") {
    super(detail || cause);
    this.cause = cause;
    this.detail = detail;
  }
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Problem("page-server-gone");
  }
  const body = await response.json().catch(() => ({}));
  if (response.ok) return body;
  if (response.status === 400) throw new Problem("refused-settings", body.error);
  throw new Problem("engine-gone", body.error);
}

const post = (path, body) =>
  request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

export const fetchOptions = () => request("/api/options");
export const fetchEngine = () => request("/api/engine");
export const measurePersona = (persona) => post("/api/measure", { persona });
export const makeCall = (wishes) => post("/api/calls", wishes);

export const callAgain = (room) => post("/api/calls/again", { room });

/** Ends a room; goes out even while the page is being closed. */
export function endCall(room) {
  const body = new Blob([JSON.stringify({ room })], { type: "application/json" });
  navigator.sendBeacon("/api/calls/end", body);
}
