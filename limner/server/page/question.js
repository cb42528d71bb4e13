// What is searched for: as the address says it, and as the server is asked.

import { keptPicture } from "./address.js";
import { PART } from "./list.js";
import { sentMarks } from "./marks.js";

export const NO_FILTERS = { where: [], after: "", before: "" };
export const NOTHING = {
  text: "",
  like: "",
  picture: "",
  weight: 0.5,
  k: PART,
  at: "",
  group: "",
  marked: false,
  plain: false,
  literal: false,
  ranks: false,
  view: "",
  ...NO_FILTERS,
};

/** The body of a search. */
export function bodyOf(asked) {
  const picture = keptPicture(asked.picture);
  const marks = asked.marked ? sentMarks(asked) : {};
  const time = (value) => (value ? (value.length === 16 ? `${value}:00` : value) : null);
  return {
    text: asked.text || null,
    image: picture?.base64 ?? null,
    like: picture ? null : asked.like || null,
    // untouched: the server reads both as one sentence where its model has learnt that
    text_weight: asked.weight === NOTHING.weight ? null : asked.weight,
    where: asked.where,
    after: time(asked.after),
    before: time(asked.before),
    group: asked.group || null,
    ...(Object.keys(marks).length ? { marks } : {}),
    ...(asked.plain ? { rerank: 0 } : {}),
    ...(asked.literal ? { literal: true } : {}),
  };
}
