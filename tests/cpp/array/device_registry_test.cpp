#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "array/make_device_model.h"
#include "devices/constant_step.h"

// Models registered at run time are tested by tests/installed: here they would stay registered for
// the other tests of this program, which run over all models.

namespace pulsora {
namespace {

std::string refusal(DeviceModel model) {
  try {
    registerDevice(std::move(model));
  } catch (const ConfigError &error) {
    return error.what();
  }
  return "";
}

TEST(DeviceRegistry, RefusesAModelThatIsKnownOrIncomplete) {
  const size_t known = deviceModels().size();
  const DeviceModel *first = &deviceModels().front();
  EXPECT_NE(refusal(makeDeviceModel<ConstantStep>()).find("'ConstantStep' already"),
            std::string::npos);
  EXPECT_NE(refusal(DeviceModel{}).find("has no name"), std::string::npos);
  const auto without = [](auto member) {
    DeviceModel model = makeDeviceModel<ConstantStep>();
    model.name = "Incomplete";
    model.*member = nullptr;
    return refusal(model);
  };
  for (const std::string &message :
       {without(&DeviceModel::readParams), without(&DeviceModel::writeParams),
        without(&DeviceModel::granularity), without(&DeviceModel::cpu),
        without(&DeviceModel::cuda)}) {
    EXPECT_NE(message.find("'Incomplete' lacks one of its functions"), std::string::npos);
  }
  EXPECT_EQ(deviceModels().size(), known);
  EXPECT_EQ(&deviceModels().front(), first);
}

}  // namespace
}  // namespace pulsora
