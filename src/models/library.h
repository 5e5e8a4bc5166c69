// The models that come with Adjoint, as text inside the binary, and models by name or path.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace adjoint {

struct LibraryText {
  std::string_view name;  // gpt2.scheme
  std::string_view text;
};
std::span<const LibraryText> library_texts();  // written by scripts/embed_texts.py

struct ModelText {
  std::string file;  // as errors name it
  std::string text;
  std::string preset = {};  // may be empty
  // Of a model in a format of others: the folder that has its parameters, and what it calls itself.
  std::string weights = {}, architecture = {};
  std::string written = {};  // the text before its uses were replaced, as an editor shows it
};

// `model` is a preset's name ("gpt2-medium"), a path to a .scheme file, maybe with a preset of its
// own (my.scheme:small), or a folder of Hugging Face's format: then its config.json is a preset of
// the family that knows its architecture (of my.scheme, with my.scheme:path/to/folder), and the
// text has it as its last line, or a .json file that is a diagram (viete.h). An Error lists the
// known presets and the nearest of them. A line `use "file.scheme"` is replaced by what that file
// says, so that the text is whole by itself.
ModelText find_model(std::string_view model);
std::vector<std::string> known_presets();

// A text with every line `use "file"` replaced by what that file says; beside `file` it is sought.
std::string with_uses(const std::string& text, const std::string& file);

}  // namespace adjoint
