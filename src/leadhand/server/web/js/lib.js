// The one place that knows where the third-party modules are.
import { h, render } from "../_npm/preact.mjs";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "../_npm/hooks.mjs";
import { signal, batch, useComputed } from "../_npm/signals.mjs";
import htm from "../_npm/htm.mjs";

const html = htm.bind(h);

export { html, render, useEffect, useLayoutEffect, useMemo, useRef, useState, signal, batch, useComputed };
