#include "device/library.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/error.h"

namespace adjoint {
namespace {

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was refused";
}

Library mathematics("libm.so.6", "mathematics");
LIBRARY_FUNCTION(mathematics, ldexp);

TEST(Library, IsOpenedByTheFirstCall) {
  EXPECT_EQ(ldexp(3.0, 4), 48.0);
  EXPECT_EQ(ldexp(3.0, 5), 96.0);
}

TEST(Library, ThatIsMissingIsOneSentence) {
  Library missing("libno_such_library.so.7", "the library of this test");
  LibraryFunction<int()> function(missing, "no_such_function");
  for (const std::string& said : {refusal([&] { missing.open(); }), refusal([&] { function(); })}) {
    EXPECT_NE(said.find("the library of this test"), std::string::npos) << said;
    EXPECT_NE(said.find("libno_such_library.so.7"), std::string::npos) << said;
    EXPECT_NE(said.find("say --device cpu"), std::string::npos) << said;
  }
}

TEST(Library, AFunctionThatIsMissingIsNamed) {
  LibraryFunction<int()> function(mathematics, "no_such_function");
  const std::string said = refusal([&] { function(); });
  EXPECT_NE(said.find("libm.so.6 has no function no_such_function"), std::string::npos) << said;
}

}  // namespace
}  // namespace adjoint
