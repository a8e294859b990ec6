// Marks everything on the page that can be clicked or filled in, and lists the marks.
(() => {
  const all = document.querySelectorAll("a[href], button, input, select, textarea, summary");
  const marks = [];
  for (const element of all) {
    if (element.disabled || !element.checkVisibility()) continue;
    element.dataset.reach = `${marks.length} ${element.tagName} ${element.textContent.trim().slice(0, 30)}`;
    marks.push(element.dataset.reach);
  }
  return JSON.stringify(marks);
})()
