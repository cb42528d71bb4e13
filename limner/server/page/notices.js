// What stands in the place of results, or above them: first visit, nothing found, something wrong.

import { isToken, showPicture } from "./api.js";
import { h } from "./elements.js";
import { alternativeText } from "./facts.js";
import { isAmong, languageNames, percent, t } from "./language.js";

const notice = (kind, title, ...more) => h("div", { class: `notice ${kind}` }, h("h2", {}, title), ...more);
const line = (text) => h("p", { dir: "auto" }, text);

/** First visit: sentences of the store, if it has any, and some of its pictures to start from. */
export function welcome(pictures, examples, { onText, onSimilar }) {
  const starts = pictures.map((picture) => {
    const image = h("img", { alt: alternativeText(picture), draggable: "false" });
    const button = h(
      "button",
      { type: "button", title: t("moreLikeThis"), onclick: () => onSimilar(picture.id) },
      image,
    );
    showPicture(image, "thumbnails", picture.id).then((shown) => shown || button.parentElement?.remove());
    return h("li", {}, button);
  });
  return h(
    "div",
    { class: "welcome" },
    // Never sentences of our own: they would find nothing sensible in a store of something else.
    examples.length ? [h("h2", {}, t("forExample")), sentenceList(examples, onText)] : null,
    starts.length
      ? [
          h("h2", {}, t(examples.length ? "orStartFrom" : "startFrom")),
          h("ul", { class: "starts" }, starts),
        ]
      : null,
    h("p", { class: "hint" }, t("welcomeHint")),
  );
}

/** Sentences to search by. */
const sentenceList = (texts, onText) =>
  h(
    "ul",
    { class: "examples" },
    texts.map((text) =>
      h("li", {}, h("button", { type: "button", class: "example", dir: "auto", onclick: () => onText(text) }, text)),
    ),
  );

/** What the store's sentences say of a picture. */
export const described = (texts, onText) =>
  h("div", { class: "welcome described" }, h("h2", {}, t("sentencesThatFit")), sentenceList(texts, onText));

export const emptyStore = () =>
  notice(
    "plain",
    t("emptyTitle"),
    line(t("emptyDetail")),
    h("pre", { dir: "ltr" }, h("code", {}, "limner index RUN STORE PICTURES")),
  );

export const nothingPasses = (total, onClear) =>
  notice(
    "plain",
    t("nonePassesTitle"),
    line(t("nonePassesDetail", { n: total })),
    h("p", {}, h("button", { type: "button", class: "go", onclick: onClear }, t("clearFilters"))),
  );

export const nothingFound = () =>
  notice("plain", t("nothingTitle"), line(t("nothingDetail")));

export function noGoodMatch(answer) {
  const best = answer.hits[0]?.probability ?? 0;
  return notice(
    "quiet",
    t("noGoodTitle"),
    line(t("noGoodDetail", { best: percent(best), threshold: percent(answer.threshold) })),
  );
}

const MOST = 10; // words of a query that are named
const some = (words) => {
  const named = words.slice(0, MOST).join(", ");
  return words.length > MOST ? t("andMore", { named, n: words.length - MOST }) : named;
};

/** Words of the query that the model searched without. */
export const leftOut = (words) =>
  notice("quiet", t("unknownTitle"), line(t("unknownDetail", { words: some(words) })));

/** Words at the end of a query that is longer than the model reads. */
export const cutOff = (words) =>
  notice("quiet", t("unreadTitle"), line(t("unreadDetail", { words: some(words) })));

/** Words that were left out, and without which the text says the opposite. */
const turned = (words) => notice("quiet", t("turnedTitle"), line(t("turnedDetail", { words: words.map((word) => `“${word}”`).join(", ") })));

/** A text in a language that the model does not read. */
const foreign = (language) =>
  notice("quiet", t("foreignTitle"), line(t("foreignDetail", { language: languageNames(language.split(" or ")) })));

/** Names in conditions that no picture has, as in an address that was typed. */
const absent = (names) => {
  const told = Object.entries(names).map(([name, near]) => (near ? `${name} (${near}?)` : name));
  return notice("quiet", t("absentTitle"), line(t("absentDetail", { names: told.join(", ") })));
};

/** Says so if the page is in a language that the model does not read. */
export const reads = (languages) =>
  languages.length && !isAmong(languages)
    ? [notice("quiet", t("readsTitle"), line(t("readsDetail", { languages: languageNames(languages) })))]
    : [];

export const pictureLost = () =>
  notice("quiet", t("lostTitle"), line(t("lostDetail")));

/** Says at once what went wrong. */
export function message(title, detail) {
  const shown = notice("quiet", title, line(detail));
  shown.setAttribute("role", "alert");
  return shown;
}

/** A problem in the server's words, with a way on. */
export function trouble(problem, onRetry) {
  const errors = problem.errors
    .map((error) => (typeof error === "string" ? error : error?.msg))
    .filter((text) => typeof text === "string" && !problem.detail.includes(text))
    .slice(0, 5);
  const retry = h("button", { type: "button", class: "go", onclick: onRetry }, t("tryAgain"));
  const shown = notice(
    "trouble",
    problem.title,
    line(problem.detail),
    errors.length
      ? h(
          "ul",
          {},
          errors.map((text) => h("li", {}, text)),
        )
      : null,
  );
  shown.setAttribute("role", "alert");
  if (worthRetrying(problem.status)) {
    shown.append(h("p", {}, retry));
    if (problem.wait) countDown(retry, problem.wait);
  }
  return shown;
}

const worthRetrying = (status) => status === 0 || status === 408 || status === 429 || status >= 500;

function countDown(button, seconds) {
  button.disabled = seconds > 0;
  button.textContent = seconds > 0 ? t("tryAgainIn", { seconds }) : t("tryAgain");
  if (seconds > 0) setTimeout(() => countDown(button, seconds - 1), 1000);
}

/** `onToken(token, remember)` gets what was typed, and whether this computer is to remember it. */
export function tokenForm(wasWrong, onToken) {
  const input = h("input", {
    type: "password",
    id: "token",
    required: true,
    autocomplete: "off",
    "aria-describedby": "token-help token-wrong",
  });
  const wrong = h("p", { class: "hint wrong", id: "token-wrong", role: "alert" });
  const remember = h("input", { type: "checkbox", id: "remember" });
  const submit = (event) => {
    event.preventDefault();
    const token = input.value.trim();
    wrong.textContent =
      !token || isToken(token) ? "" : t("tokenWrong");
    if (token && !wrong.textContent) onToken(token, remember.checked);
  };
  const title = t(wasWrong ? "tokenRefused" : "tokenAsked");
  return h(
    "form",
    { class: "notice plain token", onsubmit: submit },
    h("h2", {}, title),
    h("p", { id: "token-help" }, t("tokenHelp")),
    h(
      "div",
      { class: "where" },
      h("label", { class: "unseen", for: "token" }, t("token")),
      input,
      h("button", { type: "submit", class: "go" }, t("goOn")),
    ),
    h("label", { class: "all" }, remember, h("span", {}, t("rememberToken"))),
    wrong,
  );
}

/** What there is to say about an answer, from top to bottom. */
export function aboutAnswer(found, onNoFilters) {
  const about = [];
  if (found.unread?.length) about.push(cutOff(found.unread));
  if (found.turned?.length) about.push(turned(found.turned));
  else if (found.unknown?.length) about.push(leftOut(found.unknown));
  if (found.language) about.push(foreign(found.language));
  if (Object.keys(found.absent ?? {}).length) about.push(absent(found.absent));
  if (found.total === 0) about.push(emptyStore());
  else if (found.matching === 0) about.push(nothingPasses(found.total, onNoFilters));
  else if (found.hits.length === 0) about.push(nothingFound());
  else if (found.good === false && !found.turned?.length) about.push(noGoodMatch(found));
  return about;
}
