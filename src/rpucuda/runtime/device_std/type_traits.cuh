#pragma once

// <type_traits> for NVRTC, which has no standard library: the traits that device models and their
// kernels use.

namespace std {

template <class T, T kValue>
struct integral_constant {
  static constexpr T value = kValue;
  using value_type = T;
  using type = integral_constant;
  constexpr operator T() const { return kValue; }
  constexpr T operator()() const { return kValue; }
};
template <bool kValue>
using bool_constant = integral_constant<bool, kValue>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <class...>
using void_t = void;

template <bool kCondition, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool kCondition, class T = void>
using enable_if_t = typename enable_if<kCondition, T>::type;

template <bool kCondition, class T, class F>
struct conditional {
  using type = T;
};
template <class T, class F>
struct conditional<false, T, F> {
  using type = F;
};
template <bool kCondition, class T, class F>
using conditional_t = typename conditional<kCondition, T, F>::type;

template <class T>
struct remove_const {
  using type = T;
};
template <class T>
struct remove_const<const T> {
  using type = T;
};
template <class T>
using remove_const_t = typename remove_const<T>::type;
template <class T>
struct remove_reference {
  using type = T;
};
template <class T>
struct remove_reference<T &> {
  using type = T;
};
template <class T>
struct remove_reference<T &&> {
  using type = T;
};
template <class T>
using remove_reference_t = typename remove_reference<T>::type;
template <class T>
struct remove_cv {
  using type = T;
};
template <class T>
struct remove_cv<const T> {
  using type = T;
};
template <class T>
struct remove_cv<volatile T> {
  using type = T;
};
template <class T>
struct remove_cv<const volatile T> {
  using type = T;
};
template <class T>
using remove_cv_t = typename remove_cv<T>::type;
template <class T>
using decay_t = remove_cv_t<remove_reference_t<T>>;  // neither for arrays nor for functions

template <class A, class B>
struct is_same : false_type {};
template <class T>
struct is_same<T, T> : true_type {};
template <class A, class B>
inline constexpr bool is_same_v = is_same<A, B>::value;

template <class T>
struct is_const : false_type {};
template <class T>
struct is_const<const T> : true_type {};
template <class T>
inline constexpr bool is_const_v = is_const<T>::value;

template <class A, class B>
struct is_base_of : bool_constant<__is_base_of(A, B)> {};
template <class A, class B>
inline constexpr bool is_base_of_v = is_base_of<A, B>::value;
template <class A, class B>
inline constexpr bool is_convertible_v = __is_convertible_to(A, B);
template <class T>
struct is_enum : bool_constant<__is_enum(T)> {};
template <class T>
inline constexpr bool is_enum_v = is_enum<T>::value;
template <class T>
inline constexpr bool is_empty_v = __is_empty(T);
template <class T>
inline constexpr bool is_trivially_copyable_v = __is_trivially_copyable(T);

template <class T>
inline constexpr bool is_floating_point_v =
    is_same_v<remove_cv_t<T>, float> || is_same_v<remove_cv_t<T>, double>;
template <class T>
struct is_floating_point : bool_constant<is_floating_point_v<T>> {};
template <class T, class... List>
inline constexpr bool kIsOneOf = (is_same_v<T, List> || ...);
template <class T>
inline constexpr bool is_integral_v =
    kIsOneOf<remove_cv_t<T>, bool, char, signed char, unsigned char, short, unsigned short, int,
             unsigned, long, unsigned long, long long, unsigned long long>;
template <class T>
struct is_integral : bool_constant<is_integral_v<T>> {};
template <class T>
inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;

template <class T>
T &&declval();

}  // namespace std
