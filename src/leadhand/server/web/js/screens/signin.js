// Sign-in: a token that `leadhand serve` made and told the person who started it.
import { html, signal, useRef, useState } from "../lib.js";
import { signIn } from "../store.js";
import { Mark, Trouble } from "../ui/parts.js";

/** Why the address that the page was opened with signs nobody in. */
export const refusal = signal(null);

const told = (problem) => (problem.status === 401 || problem.status === 403 ? { title: "Not signed in", message: "Unknown token. It may belong to another server or have been replaced." } : problem);

export function SignIn() {
  const field = useRef(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    refusal.value = null;
    try {
      await signIn(field.current.value.trim());
    } catch (problem) {
      setError(told(problem));
      field.current.select();
    }
    setBusy(false);
  };
  return html`<main class="signin" id="main" tabindex="-1">
    <form class="card" onSubmit=${submit}>
      <${Mark} />
      <h1>Sign in to Leadhand</h1>
      <p class="muted">Open the address that <code>leadhand serve</code> prints, or enter its token here.</p>
      <label class="field">Token<input ref=${field} type="password" autocomplete="current-password" required autofocus /></label>
      <${Trouble} error=${error ?? (refusal.value && told(refusal.value))} />
      <button type="submit" class="primary" disabled=${busy}>${busy ? "Signing in" : "Sign in"}</button>
    </form></main>`;
}
