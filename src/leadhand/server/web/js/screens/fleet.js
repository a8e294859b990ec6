// The fleet: its board, and one task of it.
import { html, useMemo } from "../lib.js";
import { api } from "../api.js";
import { route } from "../router.js";
import { useFleet } from "../store.js";
import { Copy, Empty, Shown, Title } from "../ui/parts.js";
import { Board } from "../fleet/board.js";
import { Task } from "../fleet/task.js";

const START = "leadhand fleet start --repo ../shop";
const SUBMIT = "leadhand fleet submit search.md";

/** Cards that did not change stay the same objects, and are not drawn again. */
function sharing() {
  let known = new Map();
  return (fleet) => {
    if (!fleet) return fleet;
    const fresh = new Map();
    fleet.board.cards = fleet.board.cards.map((card) => {
      const text = JSON.stringify(card);
      const kept = known.get(text) ?? card;
      fresh.set(text, kept);
      return kept;
    });
    known = fresh;
    return fleet;
  };
}

export default function Fleet() {
  const [, run, task] = route.value.path;
  return run && task ? html`<${Task} key=${`${run}/${task}`} run=${run} task=${task} />` : html`<${Whole} since=${route.value.query.range ?? ""} />`;
}

function Whole({ since }) {
  const share = useMemo(sharing, []);
  const found = useFleet(async (control) => ({ fleet: share(await api.fleet(since, control)) }), [since]);
  return html`<${Shown} of=${found} what="Loading the fleet">${({ fleet }) => (fleet ? html`<${Board} fleet=${fleet} since=${since} refresh=${found.soon} />` : html`<${NoFleet} />`)}</${Shown}>`;
}

/** What stands in for a fleet where none is at work in this server. */
function NoFleet() {
  return html`<${Title}>Fleet</${Title}><section class="card"><${Empty} title="No fleet running"><p>A fleet runs coding agents on one repository and merges only changes that pass the gate. It includes this dashboard:</p>
    <p class="command"><code>${START}</code> <${Copy} text=${START} /></p><p>Then submit an epic:</p><p class="command"><code>${SUBMIT}</code> <${Copy} text=${SUBMIT} /></p></${Empty}></section>`;
}
