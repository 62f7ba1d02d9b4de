#pragma once

// A user's own header, of the name of one of Pulsora's: neither hides the other.
constexpr int kOwnCheck = 42;
