// Runs before the first paint, so that the page never flashes in the other theme.
(() => {
  try {
    const kept = localStorage.getItem("leadhand.theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // Storage may be switched off: then the system's choice holds.
  }
})();

// A file of the page that does not arrive, as while the server restarts, is asked for again.
const again = () => document.querySelector(".boot") && location.reload();
addEventListener("error", () => setTimeout(again, 2000), true);
setTimeout(again, 40000);
