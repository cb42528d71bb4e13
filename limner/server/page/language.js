// The page's language: its catalogue of strings, and how numbers and times are written in it.
// A catalogue is strings-LANGUAGE.js; `data-t="key"` in index.html names the string of an element.

export const LANGUAGES = { en: "English", de: "Deutsch", zh: "中文", vi: "Tiếng Việt" };
const KEPT = "limner.language";
const ATTRIBUTES = ["aria-label", "title", "placeholder"];

let language = "";
let strings = {};
let locale = "en";
let plurals = null;

/** The language that was chosen here before, if any. */
function kept() {
  try {
    const name = localStorage.getItem(KEPT);
    return name in LANGUAGES ? name : "";
  } catch {
    return ""; // Storage may be forbidden.
  }
}

const baseOf = (tag) => tag.toLowerCase().split("-")[0];
const browsers = () => globalThis.navigator?.languages || [];

function preferred() {
  return browsers().map(baseOf).find((name) => name in LANGUAGES) || "en";
}

async function read(name) {
  strings = (await import(`./strings-${name}.js`)).default;
  language = name;
  // The browser's own region where it has one for this language: en-GB writes dates as en-US does not.
  locale = browsers().find((tag) => baseOf(tag) === name) || name;
  plurals = new Intl.PluralRules(locale);
}

export const currentLanguage = () => language;

/** Changes the language, and remembers it. What is on the page is to be drawn again. */
export async function setLanguage(name) {
  await read(name);
  try {
    localStorage.setItem(KEPT, name);
  } catch {
    // Then it lasts until the page is loaded again.
  }
}

/** A string of the catalogue. Numbers among the values are written as in this language; `n` decides on the plural. */
export function t(key, values = {}) {
  const found = strings[key];
  if (found === undefined) throw new Error(`no string ${key}`);
  const text = typeof found === "string" ? found : (found[plurals.select(values.n)] ?? found.other);
  return text.replace(/\{(\w+)\}/g, (_, name) =>
    typeof values[name] === "number" ? count(values[name]) : values[name],
  );
}

/** Puts the catalogue's strings into the elements that name them. */
export function translate(root = document) {
  document.documentElement.lang = language === "zh" ? "zh-Hans" : language;
  for (const element of root.querySelectorAll("[data-t]")) element.textContent = t(element.dataset.t);
  for (const name of ATTRIBUTES)
    for (const element of root.querySelectorAll(`[data-t-${name}]`))
      element.setAttribute(name, t(element.getAttribute(`data-t-${name}`)));
}

// As a server names them; scripts have no code, and keep their English name.
const CODES = {
  ...{ English: "en", German: "de", French: "fr", Spanish: "es", Italian: "it", Dutch: "nl", Portuguese: "pt" },
  ...{ Vietnamese: "vi", Chinese: "zh", Japanese: "ja", Korean: "ko", Greek: "el", Hebrew: "he", Thai: "th" },
};

/** Languages that a server has named, as this one calls them. */
export function languageNames(names) {
  const called = new Intl.DisplayNames(locale, { type: "language" });
  return names.map((name) => (name in CODES ? called.of(CODES[name]) : name)).join(", ");
}

/** Whether the page's language is among some. */
export const isAmong = (names) => names.some((name) => CODES[name] === language);

export const count = (number) => new Intl.NumberFormat(locale).format(number);

/** A number with so many digits behind the point. */
export const decimal = (number, digits) =>
  new Intl.NumberFormat(locale, { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(number);

/** A share as a percentage; neither 0 % nor 100 % where it is not exactly that. */
export function percent(share, digits = 0) {
  const written = (value) =>
    new Intl.NumberFormat(locale, {
      style: "percent",
      minimumFractionDigits: digits,
      maximumFractionDigits: digits,
    }).format(value);
  if (digits) return written(share);
  const rounded = Math.round(share * 100);
  if (rounded >= 100 && share < 1) return `>${written(0.99)}`;
  if (rounded <= 0 && share > 0) return `<${written(0.01)}`;
  return written(share);
}

/** A time without zone, as the camera's clock showed it. */
export function clock(iso) {
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return String(iso);
  return time.toLocaleString(locale, { dateStyle: "medium", timeStyle: "short" });
}

/** "a, b or c". */
/** A time in whole minutes or seconds, as one says it. */
export function lasting(seconds) {
  const [value, unit] = seconds < 90 ? [seconds, "second"] : seconds < 5400 ? [seconds / 60, "minute"] : [seconds / 3600, "hour"];
  return new Intl.NumberFormat(locale, { style: "unit", unit, unitDisplay: "long", maximumFractionDigits: 0 }).format(value);
}

export const either = (texts) => new Intl.ListFormat(locale, { type: "disjunction" }).format(texts);

await read(kept() || preferred()); // every module that imports this one waits for it
