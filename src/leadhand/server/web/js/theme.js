// Runs before the first paint, so that the page never flashes in the other theme.
(() => {
  try {
    const kept = localStorage.getItem("leadhand.theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // Storage may be switched off: then the system's choice holds.
  }
})();
