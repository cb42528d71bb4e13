// The theme and the language of the page, as chosen at its top; `theme.js` applies a kept theme before the first paint.

import { byId, h } from "./elements.js";
import { currentLanguage, LANGUAGES, setLanguage } from "./language.js";

export function startTheme() {
  const themes = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () =>
    (document.documentElement.dataset.theme || (themes.matches ? "dark" : "light")) === "dark";
  const sayTheme = () => byId("theme").setAttribute("aria-pressed", isDark());
  byId("theme").addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("limner.theme", theme);
    } catch {
      // Then it lasts until the page is loaded again.
    }
    sayTheme();
  });
  themes.addEventListener("change", sayTheme);
  sayTheme();
}

export function startLanguage(onChange) {
  byId("language").replaceChildren(
    ...Object.entries(LANGUAGES).map(([value, name]) => h("option", { value, lang: value }, name)),
  );
  byId("language").value = currentLanguage();
  byId("language").addEventListener("change", async (event) => {
    await setLanguage(event.target.value);
    onChange();
  });
}
