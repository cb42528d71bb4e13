// The page: the address says what is searched for and which result is open; everything else follows from it.

import { forgetToken, hasToken, info as askInfo, keepToken, Problem } from "./api.js";
import {
  asksSomething,
  forgetPictures,
  keepPicture,
  keptPicture,
  keptPlace,
  ranks,
  readAddress,
  sameQuestion,
  sameSearch,
  wasOpenedHere,
  writeAddress,
} from "./address.js";
import { byId, onLink } from "./elements.js";
import { startLanguage, startTheme } from "./appearance.js";
import { hideBench, say, showBench, startBench } from "./bench.js";
import { endTold, offerChanges, startChanges } from "./changes.js";
import {
  choose,
  closeCompare,
  isChosen,
  keepChosen,
  openCompare,
  showChosen,
  showComparedMarks,
  startCompare,
} from "./compare.js";
import { buildFilters, clearFilters, fillFilters, startFilters } from "./filters.js";
import { fillForm, focusText, startForm, typed } from "./form.js";
import { readPicture } from "./given-picture.js";
import { describing, goneOf, somePictures } from "./glimpses.js";
import { startKeys } from "./keys.js";
import { t, translate } from "./language.js";
import { firstHits, goOn, PART } from "./list.js";
import { hideList, sayAwaited, sayChoices, sayList, sayStock, sayStore } from "./list-told.js";
import { forgetMany, openMany, showRows, startMany } from "./many.js";
import {
  clearMarks,
  dropMarks,
  forgetMarks,
  judged,
  MARKS,
  openMarks,
  searchKey,
  setMark,
  setNote,
  undo,
} from "./marks.js";
import * as notices from "./notices.js";
import { beginParts, findPlace, placeNow, showStart, startPlace } from "./place.js";
import { bodyOf, NO_FILTERS, NOTHING } from "./question.js";
import {
  addHits,
  clearHits,
  focusCard,
  setStopAt,
  holdsCards,
  showHits,
  showMarks,
  showRanks,
  showSkeleton,
  startResults,
} from "./results.js";
import { showTerms } from "./terms.js";
import { askToken } from "./token.js";
import { closeViewer, openViewer, showJudgement, shownInViewer, startViewer } from "./viewer.js";

const PATIENCE = 180; // ms before anything shows that an answer is awaited
let state = readAddress();
let shown = null; // the state whose answer is on the page
let answer = null;
let store = null; // what /v1/info said
let asking = null;
let list = null; // {body, going}: what the parts of the list on the page are asked by, and the part that is awaited
let goingBack = false; // a second Esc must not go back twice

/** Changes the query: into the address, and from there onto the page. */
function go(changes, { replace = false } = {}) {
  keepPlace();
  const next = { ...state, open: "", ...changes };
  if (!keptPicture(next.picture)) next.picture = "";
  // Marks are of one search: the next one begins without them.
  if (!("marked" in changes) && searchKey(next) !== searchKey(state)) next.marked = false;
  if (!("view" in changes)) next.view = "";
  // Another list begins at its beginning.
  if (!sameSearch(next, state)) Object.assign(next, { k: PART, at: "" });
  const looks = next.open === state.open && next.ranks === state.ranks;
  if (sameSearch(next, state) && looks && shown) return refresh({ again: !changes.open && !replace });
  writeAddress({ ...next, opened: next.open !== "" && (replace ? wasOpenedHere() : true) }, { replace });
  return refresh();
}

/** Brings the page in line with the address. */
async function refresh({ again = false, unsent = false } = {}) {
  state = readAddress();
  const fresh = again || !shown || !sameSearch(state, shown);
  fillForm(state, { unsent: unsent || !fresh });
  fillFilters(state);
  const subject = state.text || (ranks(state) ? t("likeAPicture") : state.where.join(", "));
  document.title = subject ? `${subject} · limner` : "limner";
  showRanks(state.ranks);
  sayChoices(state);
  if (fresh && state.open === "") closeViewer();
  if (fresh) closeCompare();
  if (fresh && !(await find())) return;
  if (fresh) goBackThere();
  showOpened();
}

/** Asks the server and shows what it says; whether it did, and no later question came between. */
async function find() {
  asking?.abort();
  endList();
  const question = (asking = new AbortController());
  const asked = state;
  say("");
  endTold();
  const late = setTimeout(wait, PATIENCE);
  try {
    if (!store) await loadStore(question.signal);
    if (asked.view === "many") (clearPage(), openMany());
    else if (!asksSomething(asked)) await showWelcome(asked, question.signal);
    else {
      const found = await searchWithMarks(asked, question.signal);
      question.signal.throwIfAborted();
      showAnswer(asked, found);
      describe(asked);
    }
    shown = asked;
    return true;
  } catch (problem) {
    if (asking === question && problem.name !== "AbortError") showProblem(problem);
    return false;
  } finally {
    clearTimeout(late);
    if (asking === question) {
      asking = null;
      document.body.removeAttribute("data-busy");
      byId("results").removeAttribute("aria-busy");
    }
  }
}

/** Searches; marks of pictures that the store holds no more are taken away, and it searches once more. */
async function searchWithMarks(asked, signal) {
  const first = () => {
    list = { body: bodyOf(asked), going: null };
    return firstHits(list.body, asked.k, store, signal);
  };
  try {
    return await first();
  } catch (problem) {
    if (problem.status !== 404 || !list.body.marks) throw problem;
    const gone = await goneOf(Object.keys(list.body.marks), signal);
    if (!gone.length) throw problem;
    dropMarks(asked, gone);
    say(t("markedGone", { n: gone.length }));
    return first();
  }
}

function wait() {
  document.body.dataset.busy = "";
  byId("results").setAttribute("aria-busy", "true");
  if (!asksSomething(state) || state.view || holdsCards()) return;
  document.body.dataset.state = "results";
  byId("notice").replaceChildren();
  showSkeleton(Math.min(state.k, 12));
}

async function loadStore(signal) {
  store = await askInfo(signal);
  await keepToken();
  offerChanges(store);
  openMarks(store.id, hasToken());
  buildFilters(store);
  sayStore(store);
  byId("forget").hidden = !hasToken();
}

function showAnswer(asked, found) {
  answer = found;
  document.body.dataset.state = "results";
  beginParts();
  showHits(found, judged(asked));
  showBench(asked, found);
  keepChosen(shown && sameQuestion(asked, shown) ? found.hits : []);
  sayList(answer, asked, list.body, store);
  showTerms(asked, found.terms ?? [], go);
  sayStock(found.total);
  const about = notices.aboutAnswer(found, () => go(NO_FILTERS));
  if (asked.picture && !keptPicture(asked.picture)) about.unshift(notices.pictureLost());
  byId("notice").replaceChildren(...about);
}

/** The next part of the list; resolves to whether it came, and no search in between. */
async function nextPart() {
  if (!answer || answer.complete || !list) return false;
  if (list.going) return list.going;
  const mine = list;
  mine.question = new AbortController();
  mine.going = addPart(mine);
  sayAwaited(true);
  try {
    return await mine.going;
  } finally {
    mine.going = null;
    if (list === mine) sayAwaited(false);
  }
}

async function addPart({ body, question }) {
  const before = answer.hits.length;
  byId("more-told").textContent = "";
  try {
    const found = await goOn(answer, body, before + PART, store, question.signal);
    if (question.signal.aborted) return false;
    answer = found;
    if (found.renewed) {
      showHits(found, judged(state));
      byId("more-told").textContent = t("storeChanged");
    } else addHits(found, before, judged(state));
    showBench(state, found);
    if (found.renewed) keepChosen(found.hits);
    sayList(answer, state, list.body, store);
    keepPlace();
    return true;
  } catch (problem) {
    if (problem.name === "AbortError" || question.signal.aborted) return false;
    if (problem.status === 401) showProblem(problem);
    // A marked picture is no longer there: the search itself sees to that.
    else if (problem.status === 404 && body.marks) refresh({ again: true });
    else byId("more-told").textContent = t("moreFailed", { why: problem.detail || String(problem) });
    return false;
  }
}

function endList() {
  list?.question?.abort();
  list = null;
  byId("more-told").textContent = "";
  byId("more").removeAttribute("aria-disabled");
}

/** Keeps in the address how long the list is and where one is in it. */
function keepPlace() {
  // While a search is under way the page still shows what is of another address.
  if (!answer || !list || asking || state.open || !shown || !sameSearch(shown, readAddress())) return;
  const place = { k: answer.hits.length, ...placeNow() };
  state = { ...state, k: Math.max(PART, place.k), at: place.at };
  writeAddress({ ...state, ...place, k: state.k, opened: wasOpenedHere() }, { replace: true });
}

/** Back to where one was. */
function goBackThere() {
  if (!answer) return;
  const { at, y, focus } = keptPlace();
  if (!findPlace({ at, y, focus })) showStart();
  if (focus && answer.hits.some((hit) => hit.id === focus)) focusCard(focus, { still: true });
  else if (at) setStopAt(at);
}

/** Sentences of the store beside the pictures that are like one. */
async function describe(asked) {
  const texts = store.sentences ? await describing(asked) : [];
  if (texts.length && sameSearch(asked, state)) byId("notice").append(notices.described(texts, byText));
}

const byText = (text) => go({ text, like: "", picture: "" });

async function showWelcome(asked, signal) {
  answer = null;
  hideBench();
  const pictures = await somePictures(store, signal);
  signal.throwIfAborted();
  document.body.dataset.state = "idle";
  clearHits();
  hideList();
  const doing = { onText: byText, onSimilar: similar };
  const first = store.pictures ? notices.welcome(pictures, store.examples, doing) : notices.emptyStore();
  byId("notice").replaceChildren(...notices.reads(store.model.languages ?? []), first);
  if (asked.picture) byId("notice").prepend(notices.pictureLost());
}

function clearPage() {
  shown = answer = null;
  hideBench();
  clearHits();
  closeViewer();
  endList();
  hideList();
}

function showProblem(problem) {
  clearPage();
  document.body.dataset.state = "results";
  if (!(problem instanceof Problem)) console.error(problem);
  const known = problem instanceof Problem ? problem : new Problem(500, t("pageFailed"), String(problem));
  if (known.status === 401) askToken(renew);
  else byId("notice").replaceChildren(notices.trouble(known, () => refresh({ again: true })));
}

/** The page as the store is now. */
function renew() {
  store = null;
  return refresh({ again: true });
}

/** Nothing of the store stays on the page, for whoever sits here next. */
async function forget() {
  forgetMarks();
  forgetMany();
  say("");
  await forgetToken();
  offerChanges(null);
  forgetPictures();
  clearFilters();
  sayStore(null);
  clearPage();
  store = null;
  go(NOTHING, { replace: true });
}

function showOpened() {
  const place = answer && state.open ? answer.hits.findIndex((hit) => hit.id === state.open) : -1;
  if (place >= 0) openViewer(answer, place, state.text, judged(state)[state.open]);
  else {
    const was = closeViewer();
    if (was) focusCard(was);
  }
}

async function similar(id) {
  await go({ like: id, text: "", picture: "", weight: 0.5 });
  window.scrollTo(0, 0);
  if (holdsCards()) focusCard();
}

async function give(file, { text = typed() } = {}) {
  try {
    const picture = keepPicture(await readPicture(file));
    go({ picture, like: "", text });
  } catch (error) {
    byId("notice").replaceChildren(notices.message(t("notSearchable"), error.message));
  }
}

/** The page after a mark or a note has changed. */
function afterMark(id) {
  const marks = judged(state);
  showMarks(marks);
  showComparedMarks(marks);
  showBench(state, answer);
  const hit = answer?.hits.find((one) => one.id === (id || shownInViewer()));
  if (hit) showJudgement(hit, marks[hit.id], false);
}

const hitOf = (id) => answer.hits.find((one) => one.id === id) || { id, ...judged(state)[id] };

function mark(hit, name) {
  if (!ranks(state)) return; // a mark is of a search
  const now = setMark(state, hit, name);
  const told = MARKS.find((one) => one.mark === now)?.told ?? "unmarked";
  say(t(told, { picture: hit.name }));
  afterMark(hit.id);
}

function compare() {
  if (answer && ranks(state)) openCompare(answer, state.text, judged(state), store.sentences > 0);
}

function takeBack() {
  const id = undo(state);
  say(id ? t("takenBack", { picture: hitOf(id).name ?? t("lastMark") }) : t("nothingToTakeBack"));
  afterMark(id);
}

function note(hit, text) {
  setNote(state, hit, text);
  afterMark(hit.id);
}

startForm({
  onSearch: (text) => {
    go({ text });
    if (!asksSomething(state)) focusText();
  },
  onPicture: give,
  onNoPicture: () => go({ picture: "", like: "", weight: 0.5, text: typed() }),
  onWeight: (weight) => go({ weight, text: typed() }),
});
startFilters((changes, options) => go({ ...changes, text: typed() }, options));
startResults({
  onOpen: (id) => go({ open: id }),
  onSimilar: similar,
  onMark: (id, name) => mark(hitOf(id), name),
  onCompare: (id) => {
    if (!ranks(state)) return;
    if (!choose(id)) say(t("compareMost"));
    else say(t(isChosen(id) ? "compareChosen" : "compareLeft", { picture: hitOf(id).name }));
  },
});
startCompare({
  onOpen: compare,
  onMark: (id, name) => mark(hitOf(id), name),
  onProblem: (problem) => problem.status === 401 && (closeCompare(), showProblem(problem), true),
});
startBench({
  onApply: () => go({ marked: true }),
  onPlain: () => go({ marked: false }),
  onUndo: takeBack,
  onClear: () => {
    clearMarks(state);
    say(t("marksCleared"));
    if (state.marked) go({ marked: false });
    else afterMark();
  },
  onMark: mark,
  onNote: note,
  onProblem: (problem) => problem.status === 401 && (showProblem(problem), true),
});
startMany({
  onOpen: (text, id) => go({ ...NOTHING, text, open: id }),
  onProblem: (problem) => problem.status === 401 && (showProblem(problem), true),
});
startChanges({
  onChanged: () => (writeAddress({ ...state, open: "" }, { replace: true }), renew()),
  onProblem: (problem) => problem.status === 401 && (showProblem(problem), true),
});
onLink("#to-many", () => go({ ...NOTHING, view: "many" }));
startViewer({
  onClose: () => {
    if (goingBack) return;
    goingBack = wasOpenedHere();
    if (goingBack) history.back();
    else go({ open: "" }, { replace: true });
  },
  onStep: async (by) => {
    const from = state.open;
    const step = () => answer?.hits[answer.hits.findIndex((hit) => hit.id === from) + by];
    if (!step() && by > 0) await nextPart();
    if (step() && state.open === from) go({ open: step().id }, { replace: true });
  },
  onSimilar: similar,
  onPart: (file) => give(file, { text: "" }),
  onMark: (id, name) => mark(hitOf(id), name),
  onNote: (id, text) => note(hitOf(id), text),
  onUndo: takeBack,
  onWhere: (condition) => go({ where: [...new Set([...state.where, condition])] }),
  onProblem: (problem) => problem.status === 401 && (showProblem(problem), true),
});
byId("more").addEventListener("click", async () => {
  if (list?.going) return;
  const before = answer?.hits.length ?? 0;
  beginParts();
  if (!(await nextPart())) return;
  const first = answer?.hits[before];
  if (first) focusCard(first.id);
});
startPlace({ onEnd: () => !list?.going && answer && !answer.complete && (nextPart(), true), onRest: keepPlace });
window.addEventListener("pagehide", keepPlace);
byId("ranks").addEventListener("click", () => go({ ranks: !state.ranks }, { replace: true }));
byId("embedding-order").addEventListener("click", () => go({ plain: !state.plain }));
byId("forget").addEventListener("click", forget);
onLink(".brand", () => go(NOTHING));
startKeys({
  onText: focusText,
  onResults: () => holdsCards() && (focusCard(answer?.hits[0]?.id), true),
  onUndo: () => answer && (takeBack(), true),
  onCompare: () => (compare(), true),
});
window.addEventListener("popstate", () => {
  goingBack = false;
  refresh();
});
onLink(".skip", () => (holdsCards() ? focusCard() : byId("results").focus())); // its hash is no query

startTheme();
startLanguage(() => {
  say("");
  translate();
  showChosen();
  if (store) (buildFilters(store), sayStore(store));
  showRows();
  refresh({ again: true, unsent: true });
});
translate();

const early = globalThis.takeEarly();
const words = typed();
if (early.sent && words && words !== state.text) {
  state = { ...state, text: words, open: "", k: PART, at: "", view: "" };
  writeAddress(state);
}
if (asksSomething(state)) document.body.dataset.state = "results";
else if (matchMedia("(hover: hover)").matches) byId("text").focus();
refresh({ unsent: early.typed && !early.sent }); // the address knows nothing of them yet
