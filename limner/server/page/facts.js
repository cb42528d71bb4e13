// A picture's facts in words: on its card, and as its alternative text. A file's name says nothing to who does not see.

import { spelled } from "./elements.js";
import { clock, t } from "./language.js";

const MOST = 3; // of a picture's own facts; the dialog has them all

/** A list reads as one: the brackets and quotation marks of JSON are nothing to listen to. */
const said = (value) => (Array.isArray(value) ? value.map(spelled).join(", ") : spelled(value));

/** Time, identity and the first facts in a line, "" where nothing is known. A bare number or letter gets its field's name. */
export function factsOf(picture) {
  const facts = Object.entries(picture.metadata || {})
    .slice(0, MOST)
    .map(([name, value]) => {
      const text = said(value);
      return text.length <= 2 || typeof value !== "string" || !Number.isNaN(Number(value)) ? `${name} ${text}` : text;
    });
  if (picture.identity != null) facts.unshift(t("identityShort", { identity: String(picture.identity) }));
  if (picture.taken) facts.unshift(clock(picture.taken));
  return facts.join("\u00a0· ");
}

/** Its file with the folder that it is in, where the server tells it; else the file's name alone. */
export const fileOf = (picture) => (picture.path ? picture.path.split(/[\\/]/).slice(-2).join("/") : picture.name);

/** What is said of a picture in place of it: its rank, where it is a result, and its facts. */
export function alternativeText(picture) {
  const facts = factsOf(picture);
  if (picture.rank != null) return t(facts ? "resultOf" : "resultWithout", { rank: picture.rank, facts });
  return facts ? t("pictureOf", { facts }) : t("pictureWithout");
}
