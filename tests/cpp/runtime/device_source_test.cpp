#include "runtime/device_source.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

#include "array/make_device_model.h"
#include "devices/soft_bounds.h"
#include "runtime/embedded_headers.h"
#include "runtime/private_folder.h"

// Equal bits of a model from source and the built-in model are tested from Python
// (tests/python/test_device_source.py): registered here, it would stay for the other tests.

namespace pulsora {
namespace {

std::string textOf(const std::string &path) {
  for (const EmbeddedHeader &header : embeddedHeaders()) {
    if (header.path == path) return header.text;
  }
  return "";
}

std::string softBounds() { return textOf("devices/soft_bounds.h"); }

bool sameRow(const FieldInfo &a, const FieldInfo &b) {
  return a.name == b.name && a.type == b.type && a.unit == b.unit && a.doc == b.doc &&
         a.range == b.range && a.choices == b.choices && a.structName == b.structName &&
         a.defaultValue == b.defaultValue;
}

TEST(DeviceSource, IsTheModelThatItsTextDescribes) {
  const PrivateFolder folder;
  ::setenv("PULSORA_CACHE_DIR", folder.path().c_str(), 1);
  ::unsetenv("PULSORA_COMPILE");
  const DeviceModel made = deviceModelFrom({softBounds()});
  const DeviceModel known = makeDeviceModel<SoftBounds>();
  EXPECT_EQ(made.name, "SoftBounds");
  EXPECT_EQ(made.doc, known.doc);
  EXPECT_EQ(made.cellMembers, known.cellMembers);
  EXPECT_EQ(made.source, softBounds());
  EXPECT_EQ(made.sourceHash.size(), 64u);
  ASSERT_EQ(made.fields.size(), known.fields.size());
  for (size_t i = 0; i < made.fields.size(); ++i)
    EXPECT_TRUE(sameRow(made.fields[i], known.fields[i])) << made.fields[i].name;
  const Value values(Value::Map{{"dw_min", 0.004}, {"pulse_noise", "sequential"}});
  EXPECT_EQ(made.writeParams(*made.readParams(values, "device")),
            known.writeParams(*known.readParams(values, "device")));
  EXPECT_EQ(compileCounts().compiled, 1u);
  deviceModelFrom({softBounds()});
  EXPECT_EQ(compileCounts().fromMemory, 1u);
  EXPECT_THROW(registerDeviceSource({softBounds()}), ConfigError);  // built in
}

TEST(NoiseSource, IsTheModelThatItsTextDescribes) {
  const PrivateFolder folder;
  ::setenv("PULSORA_CACHE_DIR", folder.path().c_str(), 1);
  ::unsetenv("PULSORA_COMPILE");
  const ModelSource source{textOf("noise_models/exponential.h")};
  const NoiseModel made = noiseModelFrom(source);
  const NoiseModel &known = noiseModel("Exponential", "");
  EXPECT_EQ(made.name, known.name);
  EXPECT_EQ(made.doc, known.doc);
  EXPECT_EQ(made.source, source.text);
  EXPECT_NE(made.kernels, nullptr);
  EXPECT_EQ(known.kernels, nullptr);
  ASSERT_EQ(made.fields.size(), known.fields.size());
  for (size_t i = 0; i < made.fields.size(); ++i)
    EXPECT_TRUE(sameRow(made.fields[i], known.fields[i])) << made.fields[i].name;
  const Value values(Value::Map{{"rest", 3.0}, {"tau", Value::List{5.0, 7.0}}});
  EXPECT_EQ(made.writeParams(*made.readParams(values, "noise_model")),
            known.writeParams(*known.readParams(values, "noise_model")));
  EXPECT_THROW(made.readParams(Value(Value::Map{{"g_min", 30.0}}), "noise_model"), ConfigError);
  EXPECT_THROW(registerNoiseSource(source), ConfigError);  // built in
}

TEST(DeviceSource, NeedsAPlainName) {
  EXPECT_EQ(normalised({"kName = \"MyStep\";\r\n"}).name, "MyStep");
  EXPECT_EQ(normalised({"kName = \"MyStep\";\r\n\r"}).text, "kName = \"MyStep\";\n\r");
  EXPECT_THROW(normalised({""}), ConfigError);
  EXPECT_THROW(normalised({"kName = \"A\"; kName = \"B\";"}), ConfigError);
  EXPECT_THROW(normalised({"kName = \"A); system(\";"}), ConfigError);
}

}  // namespace
}  // namespace pulsora
