// Where the page begins: who is there, which screen, and one stream of events.
import { html, render, useEffect } from "./lib.js";
import { api, signedOut } from "./api.js";
import { listen as listenKeys } from "./keys.js";
import { listen as listenRoute, parse, route, subject } from "./router.js";
import { notice } from "./notices.js";
import { inbox, refetch, session, signIn, start } from "./store.js";
import { short } from "./text.js";
import { watch } from "./notify.js";
import { close, open } from "./stream.js";
import { Frame } from "./ui/frame.js";
import { Loading } from "./ui/parts.js";
import { Overview } from "./screens/overview.js";
import { Runs } from "./screens/runs.js";
import { Run } from "./screens/run.js";
import { SignIn, refusal } from "./screens/signin.js";
import { LazyScreen } from "./screens/lazy_screen.js";

const TITLES = { overview: "Overview", inbox: "Inbox", compare: "Compare runs", usage: "Usage", runs: "Runs", new: "New run", fleet: "Fleet", workers: "Workers", library: "Library", settings: "Settings" };

function Screen() {
  const { path } = route.value;
  const [place, ident] = path;
  if (place === "runs" && ident) return html`<${Run} key=${ident} run=${ident} tab=${path[2]} />`;
  if (place === "runs") return html`<${Runs} />`;
  if (place === "overview") return html`<${Overview} />`;
  return html`<${LazyScreen} key=${place} place=${place} ident=${ident} />`;
}

/** A new screen has a title, and its heading the focus: that is how one hears where one is. */
function useArrival() {
  const { path } = route.value;
  const here = path.slice(0, 2).join("/");
  useEffect(() => {
    if (useArrival.last && useArrival.last !== here) {
      scrollTo(0, 0);
      requestAnimationFrame(() => document.querySelector("main h1")?.focus({ preventScroll: true }));
    }
    useArrival.last = here;
  }, [here]);
}

/** How much waits, what is shown, of which project: a tab among many is found by its title. */
function useTitle() {
  const { path } = route.value;
  const waiting = signedOut.value ? 0 : (inbox.state.value.data?.total ?? 0);
  const parts = [short(subject.value, 60) || path[1] || TITLES[path[0]], session.value?.project, "Leadhand"];
  const title = `${waiting ? `(${waiting}) ` : ""}${parts.filter(Boolean).join(" · ")}`;
  useEffect(() => {
    document.title = short(title, 200);
  }, [title]);
}

function App() {
  useArrival();
  useTitle();
  const away = signedOut.value || !session.value;
  useEffect(() => {
    if (away) return close();
    open();
    inbox.refresh();
    return undefined;
  }, [away]);
  if (signedOut.value) return html`<${SignIn} />`;
  if (!session.value) return html`<${Loading} what="Leadhand is loading" />`;
  return html`<${Frame}><${Screen} /></${Frame}>`;
}

/** The token of an address that ends in `#token=…`, which is taken out of the address at once. */
function handed() {
  const token = location.hash.match(/^#token=(.*)$/)?.[1];
  if (token === undefined) return "";
  history.replaceState(null, "", location.pathname);
  try {
    return decodeURIComponent(token);
  } catch {
    return token;
  }
}

/** `leadhand serve` prints an address that ends in `#token=…`: what follows # is never sent or logged. */
async function enter(token) {
  route.value = parse("");
  const before = session.value;
  try {
    await signIn(token);
  } catch (error) {
    signedOut.value = !before; // who was signed in still is
    if (before) notice(`Sign-in link rejected: ${error.message}`, "bad");
    else refusal.value = error;
    return undefined;
  }
  if (!before) return undefined;
  close(); // another person may hear other things
  open();
  return refetch();
}

async function arrive() {
  const token = handed();
  if (token) return void (await enter(token));
  try {
    session.value = await api.session();
  } catch (error) {
    if (!signedOut.value) setTimeout(arrive, 1000);
  }
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main")?.focus();
});
addEventListener("hashchange", () => {
  const token = handed();
  if (token) enter(token); // the printed address, pasted into a tab that is open
});
listenRoute();
listenKeys();
start();
watch();
const place = document.getElementById("app");
place.replaceChildren();
render(html`<${App} />`, place);
arrive();
