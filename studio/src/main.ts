import "./app.css";
import { mount } from "svelte";
import App from "./App.svelte";
import { hello } from "./api/client";
import { open_model } from "./state/actions";
import { project } from "./state/project.svelte";
import { results } from "./state/results.svelte";
import { settings } from "./state/settings.svelte";
import { recall, remember, set_folder } from "./state/store";
import { timings } from "./state/timings";
import { view } from "./state/view.svelte";

declare global {
  interface Window {
    __studio: unknown;
  }
}
window.__studio = { timings, view, settings, results, project, open_model, recall, remember }; // what tests read

// Whatever is remembered is of a folder, so which one it is is known first.
try {
  const { folder, version } = await hello();
  project.folder = folder.name;
  project.version = version;
  set_folder(folder.path);
} catch {
  project.lost = true;
}
mount(App, { target: document.getElementById("app")! });
