// Requests to the server of this page, and to nobody else.

// A refusal with a sentence for the user.
export class Refused extends Error {}

// An address of the server; a list among the fields is repeated.
export function address(path, fields = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) for (const one of [value].flat()) query.append(name, String(one));
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

// Returns the JSON of an address, or throws: Refused if the server says why, TypeError if it does not answer.
export async function fetched(path, fields = {}, signal = undefined) {
  const answer = await fetch(address(path, fields), { signal, credentials: "same-origin" });
  if (answer.ok) return answer.json();
  const text = await answer.text();
  let sentence = text.trim();
  try {
    sentence = JSON.parse(text).error;
  } catch {
    // a refusal of the guard is plain text
  }
  throw new Refused(sentence || `The server answers with ${answer.status}.`);
}

// Calls of which only the last one counts: an earlier one that is still under way is given up.
export class Latest {
  #controller = null;

  async get(path, fields = {}) {
    this.#controller?.abort();
    const own = (this.#controller = new AbortController());
    try {
      return await fetched(path, fields, own.signal);
    } catch (error) {
      if (own.signal.aborted) return null;
      throw error;
    }
  }
}
