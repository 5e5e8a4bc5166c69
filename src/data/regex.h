// A pattern as tokenizers' files write it, matched by PCRE2. Those files were written for
// Oniguruma and for Rust, where \s, \w and ^ mean something else than in PCRE2: such words are
// translated, and those that have no translation are refused.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace adjoint {

class Regex {
 public:
  // Throws an Error that says at which character the pattern is wrong.
  explicit Regex(const std::string& pattern);

  struct Match {
    size_t begin, end;
  };
  // What a thread matches with.
  class Finder {
   public:
    explicit Finder(const Regex& regex);
    // The first match that begins at `at` or behind it. Bytes that are not UTF-8 match nothing.
    std::optional<Match> find(std::string_view text, size_t at);

   private:
    struct Free {
      void operator()(pcre2_real_match_data_8* data) const;
    };
    const Regex& regex_;
    std::unique_ptr<pcre2_real_match_data_8, Free> data_;
  };

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

}  // namespace adjoint
