// Requests to the agent. Every URL is relative to the page, so that it works behind a prefix.

/** A response that is not 200, with the agent's message. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * @param {string} path
 * @param {[string, string][]} [query]
 * @returns {string}
 */
export function address(path, query = []) {
  const text = query.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
  return text ? `${path}?${text}` : path;
}

/**
 * @param {string} path
 * @param {[string, string][]} [query]
 * @returns {Promise<any>}
 */
export async function ask(path, query = []) {
  let response;
  try {
    response = await fetch(address(path, query), {
      headers: { accept: "application/json" },
      cache: "no-store",
    });
  } catch {
    throw new Refused(0, "the agent cannot be reached");
  }
  if (response.ok) return response.json();
  let message = `the agent responded with status ${response.status}`;
  try {
    const { error } = await response.json();
    if (typeof error === "string") message = error;
    else message = error.hint ? `${error.message} (${error.hint})` : error.message;
  } catch {
    // A proxy between the page and the agent responded; its body is not shown.
  }
  throw new Refused(response.status, message);
}

/** A response that several parts of the page use, cached for a short time. */
class Kept {
  /**
   * @param {string} path
   * @param {number} millis
   */
  constructor(path, millis) {
    this.path = path;
    this.millis = millis;
    this.at = -Infinity;
    /** @type {Promise<any> | null} */
    this.answer = null;
    /** @type {any} */
    this.last = null;
  }

  /** @param {number} [millis] the maximum age; large responses may be older */
  get(millis = this.millis) {
    const now = performance.now();
    if (!this.answer || now - this.at > Math.max(millis, (this.last?.length ?? 0) * 5)) {
      this.at = now;
      this.answer = ask(this.path).then(
        (value) => (this.last = value),
        (error) => {
          this.answer = null;
          throw error;
        },
      );
    }
    return this.answer;
  }

  forget() {
    this.answer = null;
  }
}

export const status = new Kept("status", 5000);
export const list = new Kept("api/v1/list", 15000);
