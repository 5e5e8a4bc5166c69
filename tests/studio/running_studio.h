// A studio in this process, on a free port, in a folder of its own; its commands are the binary's.
#pragma once
#include "base/file.h"
#include "base/temp_folder.h"
#include "studio/client.h"
#include "studio/studio.h"

namespace adjoint {

// A model that trains in a moment.
constexpr const char* kTiny = R"(# A small chain.
axes layers=1 hidden=16 heads=2 context=16 vocab=8

block x[batch, seq, hidden]:
  x = x + linear(attention(linear(x, 3*hidden, name=qkv), heads, causal), hidden, name=proj)

model tokens[batch, seq], targets[batch, seq]:
  x = block^layers(embed(tokens, vocab, name=table))
  loss = cross_entropy(linear(x, vocab, name=readout), targets)
)";

// Text of eight letters, as much as a small run wants.
inline std::string small_text() {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "abcdefgh"[i * i % 61 % 8];
  return text;
}

// A program in place of the binary: a shell script that behaves as no command of ours would.
class Script {
 public:
  explicit Script(const std::string& text) {
    write_file_atomically(path(), "#!/bin/sh\n" + text);
    std::filesystem::permissions(path(), std::filesystem::perms::owner_all);
  }
  std::filesystem::path path() const { return folder_ / "script"; }
  // What it may write, where the studio does not look.
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  TempFolder folder_;
};

class RunningStudio {
 public:
  RunningStudio() : RunningStudio(StudioOptions{}) {}
  explicit RunningStudio(StudioOptions options)
      : root(folder / "root"),
        studio(begin(std::move(options))),
        client(Client::of(studio.url())) {}

  std::filesystem::path operator/(const std::string& name) const { return root / name; }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((root / name).parent_path());
    write_file_atomically(root / name, text);
  }
  nlohmann::json ask(const nlohmann::json& request) const {
    return client.post("api/ask", request).json();
  }

  TempFolder folder;  // `root` and what is outside it
  std::filesystem::path root;
  Studio studio;
  Client client;

 private:
  StudioOptions begin(StudioOptions options) const {
    std::filesystem::create_directories(root);
    options.folder = root;
    if (options.program == StudioOptions{}.program) options.program = ADJOINT_BINARY;
    options.cores = 2;
    return options;
  }
};

}  // namespace adjoint
