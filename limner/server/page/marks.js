// Judgements of results, by search: they stay in this browser. With a token in the tab's storage, as the token does;
// without one in the browser's, until they are cleared.

const MOST = 500; // marks that one search may send
const MOST_SEARCHES = 300; // the oldest are forgotten
const MOST_UNDONE = 200;

let storage = null;
let name = "";
let unstored = {}; // where storage is forbidden, and searches by a picture of one's own, which is not kept either
let steps = [];

/** `label`, `title` and `told` are keys of the catalogue. */
export const MARKS = [
  { mark: "right", key: "y", label: "right", title: "rightKey", told: "markedRight", icon: "right-mark" },
  { mark: "wrong", key: "n", label: "wrong", title: "wrongKey", told: "markedWrong", icon: "wrong-mark" },
  { mark: "maybe", key: "?", label: "maybe", title: "maybeKey", told: "markedMaybe", icon: "maybe-mark" },
];

export const markOfKey = (key) => MARKS.find((one) => one.key === key.toLowerCase())?.mark;

/** Opens the marks of a store. */
export function openMarks(store, withToken) {
  name = `limner.marks.${store}`;
  try {
    storage = withToken ? sessionStorage : localStorage;
  } catch {
    storage = null; // Storage may be forbidden: the marks last as long as the page.
  }
}

/** What tells one search from another; filters do not. */
export const searchKey = (state) =>
  JSON.stringify([state.text.split(/\s+/).filter(Boolean).join(" "), state.picture ? "" : state.like, state.picture]);

function stored() {
  try {
    return JSON.parse(storage?.getItem(name) || "{}") || {};
  } catch {
    return {};
  }
}

function searches() {
  return { ...stored(), ...unstored };
}

/** Changes what is kept of one search. Read again each time, since another tab may have written meanwhile. */
function change(key, search, edit) {
  const all = stored();
  const own = unstored[key] || all[key] || { ...search, pictures: {} };
  edit(own.pictures);
  delete all[key];
  delete unstored[key];
  const left = Object.values(own.pictures).some((one) => one.mark || one.note);
  if (left && search.picture) unstored[key] = own;
  else if (left) all[key] = own; // at the end: the oldest stand first
  try {
    for (const oldest of Object.keys(all).slice(0, -MOST_SEARCHES)) delete all[oldest];
    if (!storage) throw new Error("no storage");
    storage.setItem(name, JSON.stringify(all));
  } catch {
    if (left) unstored[key] = own;
  }
}

const searchOf = (state) => ({
  text: state.text,
  like: state.picture ? "" : state.like,
  picture: Boolean(state.picture),
  where: state.where,
});

/** The judged pictures of a search by id: {mark, note, name, rank, score, probability}. */
export const judged = (state) => searches()[searchKey(state)]?.pictures || {};

/** Marks a result, or takes the mark back if it has this one already; returns the mark it has now. */
export function setMark(state, hit, mark) {
  const before = judged(state)[hit.id];
  const now = before?.mark === mark ? null : mark;
  steps.push({ state, id: hit.id, before });
  if (steps.length > MOST_UNDONE) steps.shift();
  change(searchKey(state), searchOf(state), (pictures) => put(pictures, hit, { ...before, mark: now }));
  return now;
}

export function setNote(state, hit, note) {
  const before = judged(state)[hit.id];
  change(searchKey(state), searchOf(state), (pictures) => put(pictures, hit, { mark: null, ...before, note }));
}

function put(pictures, hit, { mark = null, note = "", ...known }) {
  if (!mark && !note) return delete pictures[hit.id];
  // As it was when it was first judged: with marks the ranking is another one.
  const seen = { name: hit.name, rank: hit.rank, score: hit.score, probability: hit.probability ?? null };
  pictures[hit.id] = { ...seen, ...known, mark, note };
}

/** Takes the last mark back; returns the id of its picture, or null where there is none of this search. */
export function undo(state) {
  const key = searchKey(state);
  const place = steps.findLastIndex((step) => searchKey(step.state) === key);
  if (place < 0) return null;
  const [{ id, before }] = steps.splice(place, 1);
  change(key, searchOf(state), (pictures) => {
    const known = { ...before, ...pictures[id], mark: before?.mark }; // what was noted since stays
    put(pictures, { ...known, id }, known);
  });
  return id;
}

export const canUndo = (state) => steps.some((step) => searchKey(step.state) === searchKey(state));

/** What a search sends: the marks that move it. */
export function sentMarks(state) {
  const moving = Object.entries(judged(state)).filter(([, one]) => one.mark === "right" || one.mark === "wrong");
  return Object.fromEntries(moving.slice(-MOST).map(([id, one]) => [id, one.mark]));
}

export function dropMarks(state, ids) {
  change(searchKey(state), searchOf(state), (pictures) => ids.forEach((id) => delete pictures[id]));
}

export function clearMarks(state) {
  const key = searchKey(state);
  steps = steps.filter((step) => searchKey(step.state) !== key);
  dropMarks(state, Object.keys(judged(state)));
}

/** Every search that has marks or notes, for an export. */
export const allJudged = () => Object.values(searches());

/** Forgets the marks of this store, for whoever sits here next. */
export function forgetMarks() {
  unstored = {};
  steps = [];
  try {
    storage?.removeItem(name);
  } catch {
    // Then there were none.
  }
}
