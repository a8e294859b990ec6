// Screens that are not the first thing one sees are fetched when they are opened.
import { html, useEffect, useState } from "../lib.js";
import { to } from "../router.js";
import { Empty, Loading, Trouble } from "../ui/parts.js";

const SCREENS = {
  inbox: () => import("./inbox.js"),
  new: () => import("./new.js"),
  workers: () => import("./workers.js"),
  library: () => import("./library.js"),
  fleet: () => import("./fleet.js"),
  settings: () => import("./settings.js"),
  compare: () => import("./analysis.js").then((found) => ({ default: found.Compare })),
  usage: () => import("./analysis.js").then((found) => ({ default: found.Usage })),
};

export function LazyScreen({ place, ident, load, quiet }) {
  const [screen, setScreen] = useState(null);
  const [error, setError] = useState(null);
  const ask = load ?? SCREENS[place];
  useEffect(() => {
    ask?.().then((module) => setScreen(() => module.default), setError);
  }, []);
  if (!ask) return html`<${Empty} title="Screen not found"><p>The address may be mistyped or belong to another version. <a href=${to(["overview"])}>Go to the overview.</a></p></${Empty}>`;
  if (error) return html`<${Trouble} error=${error} again=${() => location.reload()} />`;
  return screen ? html`<${screen} ident=${ident} />` : quiet ? null : html`<${Loading} />`;
}
