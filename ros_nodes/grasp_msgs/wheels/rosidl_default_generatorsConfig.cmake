# Found in place of the distribution's package, see build.py: the generators that rclpy with Fast DDS needs, and
# no more. Those for C++ would take as long again.
set(_needed
  rosidl_cmake
  rosidl_generator_type_description
  rosidl_generator_c
  rosidl_typesupport_fastrtps_c
  rosidl_typesupport_introspection_c
  rosidl_typesupport_c
  rosidl_generator_py)
foreach(_package IN LISTS _needed)
  find_package(${_package} REQUIRED)
endforeach()

# An action depends on this package, which brings the other generators along.
find_package(action_msgs REQUIRED)
list(FILTER AMENT_EXTENSIONS_rosidl_generate_idl_interfaces EXCLUDE REGEX "_cpp:")
