// Runs before the first paint, so that a chosen theme does not flash; that is why it is no module.
try {
  const chosen = localStorage.getItem("limner.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be forbidden: the system's theme it is.
}
