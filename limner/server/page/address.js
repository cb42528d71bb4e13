// The query in the address, so that a link, a reload and the back button restore it. A picture that somebody gave
// is not: it stays in this page's memory, and the history entry has only its key there.

import { PART } from "./list.js";

const PLAIN = {
  text: "",
  like: "",
  weight: 0.5,
  k: PART, // results that are there
  at: "", // the result at the top of the window
  where: [],
  after: "",
  before: "",
  group: "",
  open: "",
  picture: "",
  marked: false, // whether this browser's marks move the search
  view: "",
  literal: false, // whether `without` and `-word` are words like others
  plain: false, // whether the embedding's order stays as it is, without the model's re-ranking
  ranks: false, // whether results say which rank they had before re-ranking
};
const pictures = new Map();
const MOST_PICTURES = 12; // going back further than so many pictures loses them

export function readAddress() {
  const values = new URLSearchParams(location.hash.slice(1));
  const weight = Number(values.get("weight") ?? PLAIN.weight);
  const k = Number.parseInt(values.get("k"), 10);
  return {
    text: values.get("q") || "",
    like: values.get("like") || "",
    weight: weight >= 0 && weight <= 1 ? weight : PLAIN.weight,
    k: k >= 1 ? k : PLAIN.k,
    where: values.getAll("where").filter(Boolean),
    after: values.get("after") || "",
    before: values.get("before") || "",
    group: ["identity", "near"].includes(values.get("group")) ? values.get("group") : "",
    at: values.get("at") || "",
    open: values.get("open") || "",
    picture: history.state?.picture || "",
    marked: values.get("marked") === "1",
    plain: values.get("rerank") === "0",
    literal: values.get("literal") === "1",
    ranks: values.get("ranks") === "1",
    view: values.get("view") === "many" ? "many" : "",
  };
}

export function writeAddress(state, { replace = false } = {}) {
  const values = new URLSearchParams();
  if (state.text) values.set("q", state.text);
  if (state.like) values.set("like", state.like);
  if (state.weight !== PLAIN.weight) values.set("weight", state.weight);
  if (state.k !== PLAIN.k) values.set("k", state.k);
  for (const condition of state.where) values.append("where", condition);
  for (const name of ["after", "before", "group", "at", "open"]) if (state[name]) values.set(name, state[name]);
  if (state.marked) values.set("marked", "1");
  if (state.plain) values.set("rerank", "0");
  if (state.literal) values.set("literal", "1");
  if (state.ranks) values.set("ranks", "1");
  if (state.view) values.set("view", state.view);
  const address = `${location.pathname}${location.search}${values.size ? `#${values}` : ""}`;
  // `opened`: this entry was made by opening a result, so closing it may go back. `y` and `focus` are of this window.
  const entry = { picture: state.picture, opened: Boolean(state.opened), y: state.y, focus: state.focus };
  if (replace) history.replaceState(entry, "", address);
  else history.pushState(entry, "", address);
}

/** Where the result `at` was in this window, and which one had the focus; a link does not say it. */
export const keptPlace = () => ({ at: readAddress().at, y: history.state?.y, focus: history.state?.focus });

export const wasOpenedHere = () => Boolean(history.state?.opened);

const ELSEWHERE = { open: "", k: 0, at: "", ranks: false }; // what is looked at, of the same results
/** What must be the same for the results to be. */
export const sameSearch = (one, other) =>
  JSON.stringify({ ...one, ...ELSEWHERE }) === JSON.stringify({ ...other, ...ELSEWHERE });

/** The same, whichever of the two orders is shown. */
export const sameQuestion = (one, other) => sameSearch({ ...one, plain: false }, { ...other, plain: false });

/** Whether pictures are ranked, by words or a picture. */
export const ranks = (state) => Boolean(state.text || state.like || pictures.has(state.picture));

export const isFiltered = (state) => state.where.length > 0 || Boolean(state.after || state.before);

/** Whether filters alone list the pictures that pass them. */
export const lists = (state) => isFiltered(state) && !ranks(state);

export const asksSomething = (state) => ranks(state) || lists(state);

/** Puts a picture into memory; returns its key. */
export function keepPicture(picture) {
  const key = `${Date.now()}-${Math.random()}`;
  pictures.set(key, picture);
  if (pictures.size > MOST_PICTURES) {
    const [oldest, gone] = pictures.entries().next().value;
    pictures.delete(oldest);
    URL.revokeObjectURL(gone.url);
  }
  return key;
}

/** Forgets every picture that was given. */
export function forgetPictures() {
  for (const picture of pictures.values()) URL.revokeObjectURL(picture.url);
  pictures.clear();
}

export const keptPicture = (key) => pictures.get(key);
