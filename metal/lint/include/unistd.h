#pragma once

int unlink(const char *path);
