// Runs before the page does, which waits for its strings: what is typed, entered or sent meanwhile is kept for it.
// No module, as modules wait, too. Where a part of the page is refused or fails, it says so: nothing else would be there.
(() => {
  const early = { typed: false, sent: false };
  const listeners = {
    input: (event) => (early.typed ||= event.target.id === "text"),
    keydown: (event) => event.target.id === "text" && event.key === "Enter" && !event.isComposing && send(event),
    submit: (event) => send(event),
  };
  const broken = () => (document.getElementById("broken").hidden = false);
  function send(event) {
    event.preventDefault(); // neither a new line nor a request of the form's own
    early.sent = true;
  }
  for (const [name, listener] of Object.entries(listeners)) document.addEventListener(name, listener, true);
  addEventListener("error", broken, true); // captured: errors of files do not bubble
  addEventListener("unhandledrejection", broken);
  /** Ends the listening, and hands out what there was. */
  globalThis.takeEarly = () => {
    for (const [name, listener] of Object.entries(listeners)) document.removeEventListener(name, listener, true);
    removeEventListener("error", broken, true);
    removeEventListener("unhandledrejection", broken);
    delete globalThis.takeEarly;
    return early;
  };
})();
