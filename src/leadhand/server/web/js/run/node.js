// One step, or a bundle of steps, as drawn in the graph. Each follows its own signal.
import { html, useComputed } from "../lib.js";
import { SIZE } from "./layout.js";
import { SHAPES, shown, stepState } from "../status.js";
import { count, label, short } from "../text.js";

const LETTERS = 15;

export function StepNode({ signal, x, y, selected, dim, focusable }) {
  const kind = useComputed(() => {
    const { tone, shape } = stepState(shown(signal.value));
    return `node tone-${tone} shape-${shape}${selected.value === signal.value.id ? " selected" : ""}${dim.value?.has(signal.value.id) ? " dim" : ""}`;
  });
  const glyph = useComputed(() => SHAPES[stepState(shown(signal.value)).shape]);
  const word = useComputed(() => detail(signal.value));
  const { id } = signal.peek();
  const told = useComputed(() => `${short(id, LETTERS)} ${word.value}`); // from afar the texts are not drawn
  return html`<g class=${kind} transform="translate(${x} ${y - SIZE.height / 2})" role="button" tabindex=${focusable ? "0" : "-1"} data-step=${id} aria-label=${told}>
    <rect width=${SIZE.width} height=${SIZE.height} rx="8" /><path class="mark" transform="translate(10 16)" d=${glyph} />
    <text x="36" y="21">${short(id, LETTERS)}</text>${" "}<text class="sub" x="36" y="37">${word}</text></g>`;
}

function detail(node) {
  const word = node.superseded_by ? `replaced by ${node.superseded_by}` : stepState(shown(node)).word;
  const tries = node.attempts > 1 ? ` ×${node.attempts}` : "";
  const by = node.worker && !node.id.startsWith(node.worker) ? ` · ${node.worker}` : "";
  return short(`${label(word)}${tries}${by}`, 20);
}

const TONE_ORDER = ["good", "live", "warn", "ask", "bad", "quiet", "faint"];

export function BundleNode({ bundle, counts, x, y, focusable }) {
  const tones = counts.value[bundle.key] ?? {};
  const total = bundle.members.length;
  let left = 0;
  const width = SIZE.width - 20;
  const bars = TONE_ORDER.filter((tone) => tones[tone]).map((tone) => {
    const wide = (width * tones[tone]) / total;
    const bar = html`<rect class="share tone-${tone}" x=${10 + left} y="34" width=${Math.max(1, wide - 1)} height="5" rx="1" />`;
    left += wide;
    return bar;
  });
  const words = TONE_ORDER.filter((tone) => tones[tone]).map((tone) => `${tones[tone]} ${WORDS[tone]}`).join(", ");
  return html`<g class="node bundle" transform="translate(${x} ${y - SIZE.height / 2})" role="button" tabindex=${focusable ? "0" : "-1"} data-bundle=${bundle.key} aria-label=${`${short(bundle.label, 15)} ${count(total, "step")}: ${words}. Open`}>
    <rect class="behind" x="5" y="-5" width=${SIZE.width} height=${SIZE.height} rx="8" /><rect width=${SIZE.width} height=${SIZE.height} rx="8" />
    <text x="10" y="20">${short(bundle.label, 15)}</text>${" "}<text class="sub end" x=${SIZE.width - 10} y="20">${total.toLocaleString("en")}</text>${bars}</g>`;
}

const WORDS = { good: "succeeded", live: "running", warn: "recovering", ask: "waiting for approval or input", bad: "failed", quiet: "not started", faint: "expected later" };
