// The options of `train` that the form has fields for; all others are typed as flags.
export interface Field {
  flag: string;
  name: string;
  value: string;
  choices?: string[];
  hint?: string;
  width?: number;
  number?: boolean;
}
export const fields: Field[] = [
  { flag: "--steps", name: "steps", value: "2000", number: true },
  {
    flag: "--batch",
    name: "batch",
    value: "12",
    number: true,
    hint: "samples of a step; the batch of the bar above, once that is not 1",
  },
  { flag: "--lr", name: "learning rate", value: "0.001", number: true },
];
export const further: Field[] = [
  { flag: "--schedule", name: "schedule", value: "wsd", choices: ["wsd", "cosine", "constant"] },
  {
    flag: "--warmup",
    name: "warm-up steps",
    value: "-1",
    number: true,
    hint: "-1: a twentieth of the run, 100 at most",
  },
  {
    flag: "--optimizer",
    name: "optimizer",
    value: "adamw",
    choices: ["adamw", "momentum", "sgd", "adafactor", "lion", "muon"],
  },
  { flag: "--weight-decay", name: "weight decay", value: "0.1", number: true },
  { flag: "--clip", name: "clip at norm", value: "1.0", number: true, hint: "0: no clipping" },
  {
    flag: "--tokenizer",
    name: "tokenizer",
    value: "char",
    choices: ["char", "byte", "word"],
    hint: "or a tokenizer.json, .model or .tiktoken file",
  },
  { flag: "--seq", name: "tokens of a sample", value: "0", number: true, hint: "0: the model's context" },
  { flag: "--seed", name: "seed", value: "1", number: true },
  { flag: "--log-every", name: "measure every", value: "10", number: true, hint: "steps" },
  { flag: "--eval-every", name: "validate every", value: "250", number: true, hint: "steps; 0: only at the end" },
  { flag: "--save-every", name: "save every", value: "500", number: true, hint: "steps; 0: only at the end" },
  { flag: "--fit", name: "budget", value: "", hint: "such as 500MB: the fastest stack that fits" },
  { flag: "--device", name: "device", value: "cpu", choices: ["cpu", "cuda"] },
  { flag: "--threads", name: "threads", value: "0", number: true, hint: "0: as many as there are cores" },
  { flag: "--ranks", name: "ranks", value: "1", number: true, hint: "as many as the stack's mesh has" },
];
