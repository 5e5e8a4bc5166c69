// adjoint chat: a conversation with a trained model.
#include "train/chat.h"

#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/sample_flags.h"

namespace adjoint {

namespace {

struct ChatFlags {
  SampleFlags sample;
  std::string system, form;
};

ChatTemplate template_of(const ChatFlags& flags, const Tokenizer& tokenizer) {
  if (flags.form.empty()) return chat_template_for(tokenizer);
  for (const ChatTemplate& known : known_chat_templates()) {
    if (known.name == flags.form) return known;
  }
  return parse_chat_template(read_file(flags.form), flags.form);
}

int run(const ChatFlags& flags) {
  SampleOptions sample = flags.sample.checked();
  use_threads(flags.sample.threads);
  GeneratorOptions options = flags.sample.generator();
  options.whole_context = true;  // a conversation grows
  Generator generator(flags.sample.model, options);
  const ChatTemplate form = template_of(flags, generator.tokenizer());
  sample.stops.insert(sample.stops.end(), form.stops.begin(), form.stops.end());
  std::vector<ChatMessage> messages;
  if (!flags.system.empty()) messages.push_back({ChatMessage::Role::kSystem, flags.system});
  std::string line;
  for (int64_t turn = 0; std::cout << "> " << std::flush, std::getline(std::cin, line); ++turn) {
    messages.push_back({ChatMessage::Role::kUser, line});
    const std::vector<int32_t> prompt = generator.tokenizer().encode(form.prompt(messages));
    const std::vector<Generated> reply =
        generator.generate({prompt}, sample, turn,
                           [](int64_t, std::string_view text) { std::cout << text << std::flush; });
    std::cout << "\n";
    flags.sample.show(generator.times());
    messages.push_back({ChatMessage::Role::kAssistant, reply[0].text});
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
                      "how conversations are written: chatml, llama3, gemma, mistral or a file; "
                      "else what the tokenizer's marks say");
  command->footer(
      "A template file has a line for each part, with {text} for the message and \\n for new "
      "lines:\n"
      "  begin <s>\n"
      "  system <|system|>\\n{text}\\n\n"
      "  user <|user|>\\n{text}\\n\n"
      "  assistant <|assistant|>\\n{text}\\n\n"
      "  stop <|user|>\n"
      "Example:\n  adjoint chat --model runs/tuned --system \"Answer briefly.\"");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
