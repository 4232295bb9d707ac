/** The server's API: requests and their refusals, in one place. */

const PREFIX = "/api/v1";

/** A request that the server refused, or that did not reach it; the message is for people. */
export class ApiError extends Error {
  /**
   * @param {number} status  0 where there was no answer.
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * Ask for something; return the JSON of the answer, or null where it has none.
 * @param {"GET"|"POST"|"PUT"|"PATCH"|"DELETE"} method
 * @param {string} path  Below the API's address.
 * @param {unknown} [body]  Sent as JSON, unless it is a file.
 * @returns {Promise<any>}
 */
export async function ask(method, path, body) {
  /** @type {RequestInit} */
  const options = { method, credentials: "same-origin" };
  if (body instanceof Blob) {
    options.body = body;
  } else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "content-type": "application/json" };
  }
  let response;
  try {
    response = await fetch(PREFIX + path, options);
  } catch {
    throw new ApiError(0, "The server cannot be reached.");
  }
  const isJson = response.headers.get("content-type")?.startsWith("application/json");
  const answer = isJson ? await response.json() : null;
  if (!response.ok) {
    throw new ApiError(response.status, answer?.error?.message ?? `The server said ${response.status}.`);
  }
  return answer;
}

/**
 * The address of something of a session.
 * @param {string} sessionId
 * @param {string} rest
 */
export function sessionPath(sessionId, rest = "") {
  return `/sessions/${encodeURIComponent(sessionId)}${rest}`;
}

/**
 * The address of a part of a display, for pictures and frames.
 * @param {string} sessionId
 * @param {number} seq
 * @param {string} type
 */
export function displayAddress(sessionId, seq, type) {
  return `${PREFIX}${sessionPath(sessionId, `/displays/${seq}`)}?type=${encodeURIComponent(type)}`;
}

/**
 * The address of a file that code has made, by the event that told of it.
 * @param {string} sessionId
 * @param {number} seq
 */
export function artifactAddress(sessionId, seq) {
  return `${PREFIX}${sessionPath(sessionId, `/artifacts/${seq}`)}`;
}

/**
 * The address of a file in a session's working folder.
 * @param {string} sessionId
 * @param {string} path
 */
export function fileAddress(sessionId, path) {
  const parts = path.split("/").map(encodeURIComponent).join("/");
  return `${PREFIX}${sessionPath(sessionId, `/files/${parts}`)}`;
}

/** The address of the events of a session, for a WebSocket. @param {string} sessionId @param {string} after */
export function eventsAddress(sessionId, after) {
  const origin = location.origin.replace(/^http/, "ws");
  const query = after ? `?after=${encodeURIComponent(after)}` : "";
  return `${origin}${PREFIX}${sessionPath(sessionId, "/events")}${query}`;
}
