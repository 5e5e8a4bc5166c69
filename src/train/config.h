// The options of a run, each declared once: a field here is a flag of `adjoint train`, a key of its
// TOML file, a line of its --help and an entry of the saved run.json (train/option.h).
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/text.h"
#include "data/chat_template.h"
#include "functors/optimizer_text.h"
#include "run/machine.h"
#include "train/fit_budget.h"
#include "train/option.h"

namespace adjoint {

inline const StepOptions kUsualStep = {};  // how a step is made has its defaults there

struct TrainConfig : OptionFields {
  // Values by name that were checked (make_config), and the model's settings under "set".
  explicit TrainConfig(nlohmann::json given);

  [[no_unique_address]] Section on_model = section("What is trained, on what");

  std::string model =
      text("model", "char",
           "a preset (char, ref, gpt2, llama3.2-1b, ...), a .scheme file, or a folder of Hugging "
           "Face's format (config.json, model.safetensors), whose weights the run starts from",
           {.makes_model = true});
  std::vector<std::string> data = texts(
      "data",
      "what to train on: a text, JSON lines (.jsonl), either of them compressed (.gz, .zst), "
      "tokens of nanoGPT or llm.c (.bin), a folder or a pattern of such files ('books/**/*.txt'), "
      "several "
      "times, with weights if they are to have shares (PATH:WEIGHT); or a .safetensors file of "
      "fields with one entry per token: tokens [n], and by name whatever else the model's inputs "
      "are (targets [n], teacher [n, vocab])",
      {.elsewhere = {"dataset", "train_file"}});
  std::string tokenizer =
      text("tokenizer", "char",
           "how the text becomes tokens: byte, char or word, learned from the text, or a "
           "tokenizer.json, .model or .tiktoken file, or a folder that has one",
           {.makes_model = true});
  std::string out = text("out", "", "the folder to save to (default: runs/MODEL)",
                         {.elsewhere = {"output_dir", "output", "save_dir", "checkpoint_dir"}});
  std::string init =
      text("init", "",
           "start from the parameters of another run's folder, with its model and tokenizer; what "
           "the stack adds starts fresh");
  std::string adapter =
      text("adapter", "",
           "start what the stack adds from the LoRA adapter in this folder of PEFT's layout",
           {.of_command = true});
  int64_t steps =
      whole("steps", 2000, {1, 1e12}, "how many steps the run has; the schedule ends there",
            {.elsewhere = {"max_iters", "iterations"}});
  int64_t stop_after =
      whole("stop_after", 0, {0, 1e12}, "save and stop after this step of the schedule; 0: go on",
            {.of_command = true, .past_the_end = "it ends before that"});
  int64_t batch = whole("batch", 12, {1, 1e6}, "samples per step",
                        {.elsewhere = {"per_device_train_batch_size"}});
  int64_t context = whole("context", 0, {0, 1e7}, "the model's context; 0: its own",
                          {.makes_model = true, .elsewhere = {"block_size"}});
  int64_t seq =
      whole("seq", 0, {0, 1e7}, "tokens per sample; 0: the context; parameters do not depend on it",
            {.elsewhere = {"max_seq_length", "max_length"}});

  // docs/data.md
  [[no_unique_address]] Section on_data = section("How samples are made of the data");

  std::string packing = one_of(
      "packing", "auto", {"auto", "crops", "windows", "documents", "padded"},
      "samples are crops at random, or everything once per epoch, shuffled: windows, rows of whole "
      "documents, or a document a row; auto: documents of JSON lines, else crops");
  std::string documents =
      one_of("documents", "together", {"together", "apart"},
             "whether attention sees other documents of its row, or is kept apart from them");
  std::string chat_template =
      text("template", "",
           "how messages of JSON lines are written: " + join(known_chat_templates(), ", ") +
               ", or a file that ends in .template");
  bool skip_bad = flag("skip_bad", "leave lines of JSON out that are broken, and count them");
  int64_t end_of_text = whole("end_of_text", -1, {-1, 2147483647},
                              "the id that ends a document in .bin files; -1: the tokenizer's");
  std::string cache =
      text("cache", "",
           "the folder of data that were tokenized (default: tokens/ beside --out for more than "
           "64 MiB of text, and otherwise memory)",
           {.only_watches = true});
  double epochs = number("epochs", 0, {0, 1e6},
                         "how many times the run goes through the data; 0: as --steps says");

  // train/schedule.h
  [[no_unique_address]] Section on_rate = section("The learning rate");

  double lr = number("lr", 1e-3, {0, 1e3}, "the highest learning rate");
  double min_lr = number("min_lr", -1, {-1, 1e3}, "the last learning rate; -1: a tenth of lr",
                         {.goes_with = {"schedule", {"cosine", "wsd"}}});
  std::string schedule =
      one_of("schedule", "wsd", {"cosine", "wsd", "constant"},
             "warm-up, then: cosine to min_lr | wsd: constant, cooling down at the end | constant",
             {.elsewhere = {"lr_scheduler_type", "lr_scheduler", "scheduler"}});
  int64_t warmup =
      whole("warmup", -1, {-1, 1e12}, "steps of warm-up; -1: a twentieth of the run, 100 at most");
  double cooldown = number("cooldown", 0.2, {0, 1}, "the part of the run that wsd cools down in",
                           {.goes_with = {"schedule", {"wsd"}}});
  std::string lr_scaling = one_of("lr_scaling", "none", {"none", "linear", "sqrt"},
                                  "how lr grows with batch / base_batch");
  int64_t base_batch = whole("base_batch", 12, {1, 1e6}, "the batch that lr was chosen for",
                             {.goes_with = {"lr_scaling", {"linear", "sqrt"}}});

  [[no_unique_address]] Section on_step = section("The step");

  StepOptions step = {
      .optimizer = text("optimizer", kUsualStep.optimizer,
                        "who updates the parameters: " + join(known_optimizers(), ", ") +
                            ", with numbers of its own as in \"lion(beta1=0.95)\", or a file "
                            "that ends in .optimizer"),
      .beta1 = number("beta1", kUsualStep.beta1, {0, 0.999999},
                      "how much AdamW's mean of gradients keeps of itself"),
      .beta2 = number("beta2", kUsualStep.beta2, {0, 0.999999},
                      "how much its mean of their squares keeps"),
      // Without it a parameter whose gradient is 0 would become 0/0, and squares of gradients below
      // 1e-22 are 0 in float32.
      .eps = number("eps", kUsualStep.eps, {0, 1}, "AdamW's eps, 1e-20 or more",
                    {.least_to_train = 1e-20}),
      .momentum = number("momentum", kUsualStep.momentum, {0, 0.999999},
                         "how much the mean of gradients keeps, of --optimizer momentum"),
      .weight_decay = number("weight_decay", kUsualStep.weight_decay, {0, 100},
                             "decay of matrices and tables; gains and biases have none"),
      .clip =
          number("clip", kUsualStep.clip, {0, 1e30},
                 "the largest norm of all gradients together, beyond which they are scaled; 0: no "
                 "clipping",
                 {.elsewhere = {"max_grad_norm", "gradient_clip_val"}}),
      .stack = text("stack", "",
                    "functors joined by '|', such as \"bf16 | checkpoint(every=2)\"; see adjoint "
                    "functors")};
  FitWish wish = {
      // An empty size is none: only a saved run says that nothing was chosen.
      .budget =
          text("fit", "",
               "choose the fastest stack that needs at most this much memory, such as 8GB, beside "
               "what --stack names",
               {.check_flag = [](const std::string& size) { budget_of(size); }}),
      .may_approximate =
          flag("allow_approximating",
               "--fit may choose bf16, too, and 8 or 4 bits for frozen matrices: another function"),
      .seconds = number("fit_seconds", kFitSeconds, {0, 1e7},
                        "--fit answers after so many seconds with the best that it has found; 0: "
                        "when nothing is left to try",
                        {.of_command = true}),
      .profile = text("profile", "",
                      "--fit goes by the times of this folder of `adjoint profile`, not by the "
                      "CPU's sheet")};

  [[no_unique_address]] Section on_loop = section("The run: evaluations, saves, metrics");

  int64_t seed = whole("seed", 1, {0, 1e15}, "decides initial weights, batches and dropout");
  int64_t eval_every =
      whole("eval_every", 250, {0, 1e12}, "steps between evaluations; 0: only at the end",
            {.only_watches = true,
             .past_the_end = "it is evaluated at the end alone",
             .elsewhere = {"eval_interval", "eval_steps"}});
  int64_t eval_batches = whole("eval_batches", 20, {0, 1e9},
                               "batches per evaluation; 0: the whole validation part, once through",
                               {.only_watches = true});
  int64_t save_every =
      whole("save_every", 500, {0, 1e12}, "steps between saves; 0: only at the end",
            {.only_watches = true,
             .past_the_end = "it is saved at the end alone",
             .elsewhere = {"save_interval", "save_steps"}});
  int64_t keep = whole("keep", 0, {0, 1e6},
                       "of the last saves, also keep this many in folders of their own, OUT/step-N",
                       {.only_watches = true, .elsewhere = {"save_total_limit"}});
  bool keep_best =
      flag("keep_best", "also keep the save with the lowest validation loss, in OUT/best",
           {.only_watches = true});
  int64_t patience =
      whole("patience", 0, {0, 1e9},
            "evaluations without a lower validation loss before the run ends; 0: never");
  double max_minutes = number("max_minutes", 0, {0, 1e7},
                              "save and stop after so much time; 0: never", {.of_command = true});
  double spike = number("spike", 0, {0, 1e9},
                        "a loss of more than so many times the mean of the 100 steps before is a "
                        "spike; 0: only what is no number is one");
  std::string on_spike = one_of(
      "on_spike", "stop", {"stop", "skip", "back"},
      "at a spike write that batch to OUT/spike.json and: save and stop | leave everything as "
      "before that step and go on | go back to the last save and leave that batch out");
  int64_t log_every = whole("log_every", 10, {1, 1e12}, "steps between lines of metrics.jsonl",
                            {.only_watches = true, .elsewhere = {"log_interval", "logging_steps"}});
  int64_t norms = whole("norms", 0, {0, 1e12},
                        "steps between norms of gradients and weights by role, in the metrics; 0: "
                        "none",
                        {.past_the_end = "no norms are taken"});
  bool tensorboard = flag("tensorboard", "write the metrics for TensorBoard, too, into --out",
                          {.only_watches = true});
  double val_fraction =
      number("val_fraction", 0.1, {0.0001, 0.9}, "the last part of the data, for validation");
  int64_t max_vocab = whole("max_vocab", 8192, {2, 1e7}, "the most words of the word tokenizer",
                            {.makes_model = true,
                             .goes_with = {"tokenizer", {"word"}},
                             .of_beginning = "the run has its vocabulary"});

  [[no_unique_address]] Section on_machine = section("The machine");

  std::string device =
      one_of("device", "cpu", known_targets(), "where the steps run", {.meant = meant_target});
  bool deterministic =
      flag("deterministic", "the same bits every time also on cuda, somewhat slower");
  int64_t threads =
      whole("threads", 0, {0, 1024},
            "CPU threads of each rank; 0: as many as there are cores, shared by ranks");
  int64_t ranks = whole("ranks", 1, {1, 1024},
                        "how many ranks train together, threads of this process, on the mesh that "
                        "the stack says: data_parallel(4) wants 4; under mpirun its ranks, which "
                        "are processes");
  int64_t check_replicas =
      whole("check_replicas", 0, {0, 1e12},
            "steps between comparisons of what several ranks hold, which must be the same bits; 0: "
            "never",
            {.only_watches = true, .past_the_end = "nothing is compared"});
  std::string workspace =
      text("workspace", "",
           "no kernel takes more scratch memory than this, such as 64MiB, where it has another way "
           "(default: what the device's sheet says); how products are summed depends on it");

  [[no_unique_address]] Section on_folder = section("Runs that are there already");

  std::string repeat = text(
      "repeat", "",
      "run once more, into another --out, what the run in this folder was: the same bits on the "
      "same machine; refused where its data or weights have changed",
      {.of_command = true});
  bool resume = flag("resume", "go on where the run in --out stopped", {.of_command = true});
  bool overwrite = flag("overwrite", "begin anew even if --out holds a run", {.of_command = true});

  nlohmann::json settings = nlohmann::json::object();  // of the model: {"layers": 2}

  // How long the run is, once the data have told how long an epoch is.
  void set_steps(int64_t count);
};

// Every option, in the order of --help.
std::span<const OptionSpec> train_options();

// Later objects override earlier ones; what none says is the default. Errors name the option.
TrainConfig make_config(std::span<const nlohmann::json> layers);

}  // namespace adjoint
