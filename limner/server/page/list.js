// The list of one search, part by part: all parts are of one state of the store, so that none is there twice or missing.

import { search } from "./api.js";

export const PART = 20; // pictures that are asked for at once
export const LAST_OFFSET = 10_000; // beyond it the server has no parts
const MOST_AT_FIRST = 1000; // of what an address asks for
const TRIES = 3; // beside somebody who changes the store all the while

/** The first `wanted` hits of a search, in parts of at most `most`: an answer, `complete` if there are no further hits. */
export async function firstHits(body, wanted, most, signal) {
  const k = Math.min(wanted, most);
  const first = await search({ ...body, k }, signal);
  return goOn({ ...first, complete: isLast(first, k) }, body, Math.min(wanted, MOST_AT_FIRST), most, signal);
}

/**
 * The same answer with `wanted` hits. Where the store has changed since, all parts are asked for again; the answer is
 * `renewed` then. With an offset, 0 too, the server ranks exactly, so that the parts of a large store fit together.
 */
export async function goOn(answer, body, wanted, most, signal) {
  let found = { ...answer, renewed: false };
  let tries = TRIES;
  while (found.hits.length < wanted && !found.complete) {
    const offset = found.hits.length;
    const k = Math.min(most, wanted - offset);
    const part = await search({ ...body, k, offset }, signal);
    const known = new Set(found.hits.map((hit) => hit.id));
    const fresh = part.hits.filter((hit) => !known.has(hit.id));
    if ((part.snapshot !== found.snapshot || fresh.length < part.hits.length) && tries > 0) {
      tries -= 1;
      const again = Math.min(wanted, most);
      const first = await search({ ...body, k: again, offset: 0 }, signal);
      found = { ...first, complete: isLast(first, again), renewed: true };
    } else {
      found = { ...found, hits: [...found.hits, ...fresh], complete: isLast(part, k) || offset + k > LAST_OFFSET };
    }
  }
  return found;
}

/** The server ends a part early whose texts are long: then the next one begins where it ends. */
const isLast = (part, k) => part.hits.length + (part.left_out ?? 0) < k;
