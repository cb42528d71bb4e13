// Runs before the page does, which waits for its strings: what is typed, entered or sent meanwhile is kept for it.
// No module, as modules wait, too.
(() => {
  const early = { typed: false, sent: false };
  const listeners = {
    input: (event) => (early.typed ||= event.target.id === "text"),
    keydown: (event) => event.target.id === "text" && event.key === "Enter" && !event.isComposing && send(event),
    submit: (event) => send(event),
  };
  function send(event) {
    event.preventDefault(); // neither a new line nor a request of the form's own
    early.sent = true;
  }
  for (const [name, listener] of Object.entries(listeners)) document.addEventListener(name, listener, true);
  /** Ends the listening, and hands out what there was. */
  globalThis.takeEarly = () => {
    for (const [name, listener] of Object.entries(listeners)) document.removeEventListener(name, listener, true);
    delete globalThis.takeEarly;
    return early;
  };
})();
