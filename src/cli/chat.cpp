// adjoint chat: a conversation with a trained model.
#include <iostream>
#include <optional>

#include "base/activity.h"
#include "base/note.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/interrupts.h"
#include "cli/sample_flags.h"
#include "data/chat_template.h"
#include "train/doubts.h"

namespace adjoint {

namespace {

struct ChatFlags {
  SampleFlags sample;
  std::string system, form;
};

// Ctrl-C ends a reply, and where none is being written the conversation.
int run(const ChatFlags& flags) {
  Interrupts interrupts;
  SampleOptions sample = flags.sample.checked();
  use_threads(flags.sample.threads);
  GeneratorOptions options = flags.sample.generator();
  options.whole_context = true;  // a conversation grows
  std::optional<Activity> reading(std::in_place, "reading the model");
  Generator generator(flags.sample.model, options);
  reading.reset();
  Interrupts::be_silent();  // a conversation tells by ending
  generator.stop_when(&interrupts.stop());
  const std::string& named = flags.form.empty() ? generator.chat_template() : flags.form;
  const ChatTemplate form =
      named.empty() ? chat_template_for(generator.tokenizer()) : find_chat_template(named);
  if (!flags.form.empty()) {
    const auto doubts = doubts_about_template(form, generator.tokenizer(), flags.sample.model);
    for (const std::string& doubt : doubts) warn_once(doubt);
  }
  if (!form.stop().empty()) sample.stops.push_back(form.stop());
  std::vector<ChatMessage> messages;
  if (!flags.system.empty()) messages.push_back({"system", flags.system});
  std::string line;
  for (int64_t turn = 0; std::cout << "> " << std::flush, std::getline(std::cin, line); ++turn) {
    messages.push_back({"user", line});
    std::vector<int32_t> prompt;
    for (const TextPiece& piece : form.prompt(messages)) {
      const std::vector<int32_t> ids = encode_piece(generator.tokenizer(), piece);
      prompt.insert(prompt.end(), ids.begin(), ids.end());
    }
    interrupts.ask_from_now_on();
    std::optional<Activity> thinking(std::in_place, "reading what was said");
    const std::vector<Generated> reply =
        generator.generate({prompt}, sample, turn, [&](int64_t, std::string_view text) {
          thinking.reset();
          std::cout << text << std::flush;
        });
    thinking.reset();
    interrupts.end_from_now_on();
    std::cout << "\n";
    flags.sample.show(generator.times());
    messages.push_back({"assistant", reply[0].text});
  }
  std::cout << "\n";
  return kDone;
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("chat", "a conversation with a trained model, a line at a time");
  auto flags = std::make_shared<ChatFlags>();
  flags->sample.add_to(*command);
  command->add_option("--system", flags->system, "what the model is told before the first line");
  command->add_option("--template", flags->form,
                      "how conversations are written: " + join(known_chat_templates(), ", ") +
                          ", or a file that ends in .template; else the run's own, or what the "
                          "tokenizer's special tokens tell");
  command->footer(
      "A template has a line for each role, with {} for what is said; the model writes up to "
      "{end}:\n"
      "  user = \"<|user|>\\n{}\\n\"\n"
      "  assistant = \"<|assistant|>\\n{}<|end|>{end}\\n\"\n"
      "Example:\n  adjoint chat --model runs/tuned --system \"Answer briefly.\"");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
