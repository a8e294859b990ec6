// The one place that knows where the third-party modules are.
import { h, render } from "../_npm/preact.mjs";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "../_npm/hooks.mjs";
import { signal, batch, useComputed } from "../_npm/signals.mjs";
import htm from "../_npm/htm.mjs";
import { visible } from "./text.js";

// No text turns the direction of reading or hides: neither what is shown nor what is read aloud.
const TURNS = /[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/;

const seen = (value) => (value?.map ? value.map(seen) : value?.trim && TURNS.test(value) ? visible(value) : value);

const html = htm.bind((type, props, ...children) => {
  for (const name in props) if (/^title|label$/.test(name)) props[name] = seen(props[name]);
  return h(type, props, ...children.map(seen));
});

export { html, render, useEffect, useLayoutEffect, useMemo, useRef, useState, signal, batch, useComputed };
