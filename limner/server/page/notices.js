// What stands in the place of results, or above them: first visit, nothing found, something wrong.

import { isToken, showPicture } from "./api.js";
import { count, h, percent } from "./elements.js";

const notice = (kind, title, ...more) => h("div", { class: `notice ${kind}` }, h("h2", {}, title), ...more);
const line = (text) => h("p", {}, text);

/** First visit: sentences of the store, if it has any, and some of its pictures to start from. */
export function welcome(pictures, examples, { onText, onSimilar }) {
  const starts = pictures.map((picture) => {
    const image = h("img", { alt: `Picture ${picture.name}`, draggable: "false" });
    const button = h(
      "button",
      { type: "button", title: "More like this", onclick: () => onSimilar(picture.id) },
      image,
    );
    showPicture(image, "thumbnails", picture.id).then((shown) => shown || button.parentElement?.remove());
    return h("li", {}, button);
  });
  return h(
    "div",
    { class: "welcome" },
    // Never sentences of our own: they would find nothing sensible in a store of something else.
    examples.length ? [h("h2", {}, "For example"), sentenceList(examples, onText)] : null,
    starts.length
      ? [
          h("h2", {}, `${examples.length ? "Or start" : "Start"} from a picture of the store`),
          h("ul", { class: "starts" }, starts),
        ]
      : null,
    h(
      "p",
      { class: "hint" },
      "You can also drop, paste or choose a picture of your own, with words beside it or alone.",
    ),
  );
}

/** Sentences to search by. */
const sentenceList = (texts, onText) =>
  h(
    "ul",
    { class: "examples" },
    texts.map((text) =>
      h("li", {}, h("button", { type: "button", class: "example", onclick: () => onText(text) }, text)),
    ),
  );

/** What the store's sentences say of a picture. */
export const described = (texts, onText) =>
  h("div", { class: "welcome described" }, h("h2", {}, "Sentences that fit it"), sentenceList(texts, onText));

export const emptyStore = () =>
  notice(
    "plain",
    "There are no pictures here yet",
    line("The store that this server searches is empty. Put pictures into it, and load this page again:"),
    h("pre", {}, h("code", {}, "limner index RUN STORE PICTURES")),
  );

export const nothingPasses = (total, onClear) =>
  notice(
    "plain",
    "No picture passes these filters",
    line(`The store has ${count(total)}. Take away a filter, or all of them.`),
    h("p", {}, h("button", { type: "button", class: "go", onclick: onClear }, "Clear the filters")),
  );

export const nothingFound = () =>
  notice("plain", "Nothing found", line("No picture came back for this search. Try other words."));

export function noGoodMatch(answer) {
  const best = answer.hits[0]?.probability ?? 0;
  return notice(
    "quiet",
    "No good match",
    line(
      `The first picture reaches ${percent(best)}; a match would have ${percent(answer.threshold)} or more. Here are the nearest all the same.`,
    ),
  );
}

/** Words of the query that the model searched without. */
export const leftOut = (words) =>
  notice("quiet", "Not all words are known", line(`The model does not know, and left out: ${words.join(", ")}.`));

/** Words at the end of a query that is longer than the model reads. */
export const cutOff = (words) =>
  notice("quiet", "The end was not read", line(`Longer than the model reads, and left out: ${words.join(", ")}.`));

export const leftOutHits = (number) =>
  notice("quiet", "Not all of them are shown", line(`${count(number)} more do not fit into one answer of this server.`));

export const pictureLost = () =>
  notice(
    "quiet",
    "The picture of this search is gone",
    line("Pictures are not kept when the page is loaded again. Choose, paste or drop it once more."),
  );

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
  const retry = h("button", { type: "button", class: "go", onclick: onRetry }, "Try again");
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
  button.textContent = seconds > 0 ? `Try again in ${seconds} s` : "Try again";
  if (seconds > 0) setTimeout(() => countDown(button, seconds - 1), 1000);
}

/** `onToken(token)` gets what was typed. */
export function tokenForm(wasWrong, onToken) {
  const input = h("input", {
    type: "password",
    id: "token",
    required: true,
    autocomplete: "off",
    "aria-describedby": "token-help token-wrong",
  });
  const wrong = h("p", { class: "hint wrong", id: "token-wrong", role: "alert" });
  const submit = (event) => {
    event.preventDefault();
    const token = input.value.trim();
    wrong.textContent =
      !token || isToken(token) ? "" : "A token has letters, digits and signs only, and no blanks.";
    if (token && !wrong.textContent) onToken(token);
  };
  const title = wasWrong ? "The server does not take this token" : "This server asks for a token";
  return h(
    "form",
    { class: "notice plain token", onsubmit: submit },
    h("h2", {}, title),
    h("p", { id: "token-help" }, "Whoever runs it has one. It is kept until you close this tab."),
    h(
      "div",
      { class: "where" },
      h("label", { class: "unseen", for: "token" }, "Token"),
      input,
      h("button", { type: "submit", class: "go" }, "Go on"),
    ),
    wrong,
  );
}
