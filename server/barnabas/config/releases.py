"""APIs that releases of Apache Kafka advertise to clients (key:first-last, in the order of keys), and their defaults. Pure.

Read from the `ApiKeys` of each release's kafka-clients (0.9.0.1 to 4.4.0, the newest patch of each), and from the
broker's sources before. Up to 3.9 they are those of a broker on ZooKeeper, from 4.0 on those of one on KRaft.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_RELEASES = {
    "0.8.0": ("0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0"),
    "0.8.1": ("0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0 8:0 9:0"),
    "0.8.2": ("0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0 8:0-1 9:0-1 10:0"),
    "0.9.0": ("0:0-1 1:0-1 2:0 3:0 4:0 5:0 6:0-1 7:1 8:0-2 9:0-1 10:0 11:0 12:0 13:0 14:0 15:0 16:0"),
    "0.10.0": (
        "0:0-2 1:0-2 2:0 3:0-1 4:0 5:0 6:0-2 7:1 8:0-2 9:0-1 10:0 11:0 12:0 13:0 14:0 15:0 16:0 17:0 18:0"
    ),
    "0.10.1": (
        "0:0-2 1:0-3 2:0-1 3:0-2 4:0 5:0 6:0-2 7:1 8:0-2 9:0-1 10:0 11:0-1 12:0 13:0 14:0 15:0 16:0 17:0 18:0 19:0 "
        "20:0"
    ),
    "0.10.2": (
        "0:0-2 1:0-3 2:0-1 3:0-2 4:0 5:0 6:0-3 7:1 8:0-2 9:0-2 10:0 11:0-1 12:0 13:0 14:0 15:0 16:0 17:0 18:0 19:0-1 "
        "20:0"
    ),
    "0.11.0": (
        "0:0-3 1:0-5 2:0-2 3:0-4 4:0 5:0 6:0-3 7:1 8:0-3 9:0-3 10:0-1 11:0-2 12:0-1 13:0-1 14:0-1 15:0-1 16:0-1 17:0 "
        "18:0-1 19:0-2 20:0-1 21:0 22:0 23:0 24:0 25:0 26:0 27:0 28:0 29:0 30:0 31:0 32:0 33:0"
    ),
    "1.0": (
        "0:0-5 1:0-6 2:0-2 3:0-5 4:0-1 5:0 6:0-4 7:0-1 8:0-3 9:0-3 10:0-1 11:0-2 12:0-1 13:0-1 14:0-1 15:0-1 16:0-1 "
        "17:0-1 18:0-1 19:0-2 20:0-1 21:0 22:0 23:0 24:0 25:0 26:0 27:0 28:0 29:0 30:0 31:0 32:0 33:0 34:0 35:0 36:0 "
        "37:0"
    ),
    "1.1": (
        "0:0-5 1:0-7 2:0-2 3:0-5 4:0-1 5:0 6:0-4 7:0-1 8:0-3 9:0-3 10:0-1 11:0-2 12:0-1 13:0-1 14:0-1 15:0-1 16:0-1 "
        "17:0-1 18:0-1 19:0-2 20:0-1 21:0 22:0 23:0 24:0 25:0 26:0 27:0 28:0 29:0 30:0 31:0 32:0-1 33:0 34:0 35:0 "
        "36:0 37:0 38:0 39:0 40:0 41:0 42:0"
    ),
    "2.0": (
        "0:0-6 1:0-8 2:0-3 3:0-6 4:0-1 5:0 6:0-4 7:0-1 8:0-4 9:0-4 10:0-2 11:0-3 12:0-2 13:0-2 14:0-2 15:0-2 16:0-2 "
        "17:0-1 18:0-2 19:0-3 20:0-2 21:0-1 22:0-1 23:0-1 24:0-1 25:0-1 26:0-1 27:0 28:0-1 29:0-1 30:0-1 31:0-1 "
        "32:0-2 33:0-1 34:0-1 35:0-1 36:0 37:0-1 38:0-1 39:0-1 40:0-1 41:0-1 42:0-1"
    ),
    "2.1": (
        "0:0-7 1:0-10 2:0-4 3:0-7 4:0-1 5:0 6:0-4 7:0-1 8:0-6 9:0-5 10:0-2 11:0-3 12:0-2 13:0-2 14:0-2 15:0-2 16:0-2 "
        "17:0-1 18:0-2 19:0-3 20:0-3 21:0-1 22:0-1 23:0-2 24:0-1 25:0-1 26:0-1 27:0 28:0-2 29:0-1 30:0-1 31:0-1 "
        "32:0-2 33:0-1 34:0-1 35:0-1 36:0 37:0-1 38:0-1 39:0-1 40:0-1 41:0-1 42:0-1"
    ),
    "2.2": (
        "0:0-7 1:0-10 2:0-5 3:0-7 4:0-2 5:0-1 6:0-5 7:0-2 8:0-6 9:0-5 10:0-2 11:0-4 12:0-2 13:0-2 14:0-2 15:0-2 "
        "16:0-2 17:0-1 18:0-2 19:0-3 20:0-3 21:0-1 22:0-1 23:0-2 24:0-1 25:0-1 26:0-1 27:0 28:0-2 29:0-1 30:0-1 "
        "31:0-1 32:0-2 33:0-1 34:0-1 35:0-1 36:0-1 37:0-1 38:0-1 39:0-1 40:0-1 41:0-1 42:0-1 43:0"
    ),
    "2.3": (
        "0:0-7 1:0-11 2:0-5 3:0-8 4:0-2 5:0-1 6:0-5 7:0-2 8:0-7 9:0-5 10:0-2 11:0-5 12:0-3 13:0-2 14:0-3 15:0-3 "
        "16:0-2 17:0-1 18:0-2 19:0-3 20:0-3 21:0-1 22:0-1 23:0-3 24:0-1 25:0-1 26:0-1 27:0 28:0-2 29:0-1 30:0-1 "
        "31:0-1 32:0-2 33:0-1 34:0-1 35:0-1 36:0-1 37:0-1 38:0-1 39:0-1 40:0-1 41:0-1 42:0-1 43:0 44:0"
    ),
    "2.4": (
        "0:0-8 1:0-11 2:0-5 3:0-9 4:0-4 5:0-2 6:0-6 7:0-3 8:0-8 9:0-6 10:0-3 11:0-6 12:0-4 13:0-4 14:0-4 15:0-5 "
        "16:0-3 17:0-1 18:0-3 19:0-5 20:0-4 21:0-1 22:0-2 23:0-3 24:0-1 25:0-1 26:0-1 27:0 28:0-2 29:0-1 30:0-1 "
        "31:0-1 32:0-2 33:0-1 34:0-1 35:0-1 36:0-1 37:0-1 38:0-2 39:0-1 40:0-1 41:0-1 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0"
    ),
    "2.5": (
        "0:0-8 1:0-11 2:0-5 3:0-9 4:0-4 5:0-2 6:0-6 7:0-3 8:0-8 9:0-7 10:0-3 11:0-7 12:0-4 13:0-4 14:0-5 15:0-5 "
        "16:0-3 17:0-1 18:0-3 19:0-5 20:0-4 21:0-1 22:0-3 23:0-3 24:0-1 25:0-1 26:0-1 27:0 28:0-3 29:0-2 30:0-2 "
        "31:0-2 32:0-2 33:0-1 34:0-1 35:0-1 36:0-2 37:0-2 38:0-2 39:0-2 40:0-2 41:0-2 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0"
    ),
    "2.6": (
        "0:0-8 1:0-11 2:0-5 3:0-9 4:0-4 5:0-3 6:0-6 7:0-3 8:0-8 9:0-7 10:0-3 11:0-7 12:0-4 13:0-4 14:0-5 15:0-5 "
        "16:0-4 17:0-1 18:0-3 19:0-5 20:0-4 21:0-2 22:0-3 23:0-3 24:0-1 25:0-1 26:0-1 27:0 28:0-3 29:0-2 30:0-2 "
        "31:0-2 32:0-3 33:0-1 34:0-1 35:0-2 36:0-2 37:0-2 38:0-2 39:0-2 40:0-2 41:0-2 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0 48:0 49:0"
    ),
    "2.7": (
        "0:0-8 1:0-12 2:0-5 3:0-9 4:0-4 5:0-3 6:0-6 7:0-3 8:0-8 9:0-7 10:0-3 11:0-7 12:0-4 13:0-4 14:0-5 15:0-5 "
        "16:0-4 17:0-1 18:0-3 19:0-6 20:0-5 21:0-2 22:0-4 23:0-3 24:0-2 25:0-2 26:0-2 27:0 28:0-3 29:0-2 30:0-2 "
        "31:0-2 32:0-3 33:0-1 34:0-1 35:0-2 36:0-2 37:0-3 38:0-2 39:0-2 40:0-2 41:0-2 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0 48:0 49:0 50:0 51:0 56:0 57:0"
    ),
    "2.8": (
        "0:0-9 1:0-12 2:0-6 3:0-11 4:0-5 5:0-3 6:0-7 7:0-3 8:0-8 9:0-7 10:0-3 11:0-7 12:0-4 13:0-4 14:0-5 15:0-5 "
        "16:0-4 17:0-1 18:0-3 19:0-7 20:0-6 21:0-2 22:0-4 23:0-4 24:0-3 25:0-3 26:0-3 27:0-1 28:0-3 29:0-2 30:0-2 "
        "31:0-2 32:0-4 33:0-2 34:0-2 35:0-2 36:0-2 37:0-3 38:0-2 39:0-2 40:0-2 41:0-2 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0 48:0-1 49:0-1 50:0 51:0 56:0 57:0 60:0 61:0"
    ),
    "3.0": (
        "0:0-9 1:0-12 2:0-7 3:0-11 4:0-5 5:0-3 6:0-7 7:0-3 8:0-8 9:0-8 10:0-4 11:0-7 12:0-4 13:0-4 14:0-5 15:0-5 "
        "16:0-4 17:0-1 18:0-3 19:0-7 20:0-6 21:0-2 22:0-4 23:0-4 24:0-3 25:0-3 26:0-3 27:0-1 28:0-3 29:0-2 30:0-2 "
        "31:0-2 32:0-4 33:0-2 34:0-2 35:0-2 36:0-2 37:0-3 38:0-2 39:0-2 40:0-2 41:0-2 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0 48:0-1 49:0-1 50:0 51:0 56:0 57:0 60:0 61:0 65:0 66:0 67:0"
    ),
    "3.1": (
        "0:0-9 1:0-13 2:0-7 3:0-12 4:0-5 5:0-3 6:0-7 7:0-3 8:0-8 9:0-8 10:0-4 11:0-7 12:0-4 13:0-4 14:0-5 15:0-5 "
        "16:0-4 17:0-1 18:0-3 19:0-7 20:0-6 21:0-2 22:0-4 23:0-4 24:0-3 25:0-3 26:0-3 27:0-1 28:0-3 29:0-2 30:0-2 "
        "31:0-2 32:0-4 33:0-2 34:0-2 35:0-2 36:0-2 37:0-3 38:0-2 39:0-2 40:0-2 41:0-2 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0 48:0-1 49:0-1 50:0 51:0 56:0 57:0 60:0 61:0 65:0 66:0 67:0"
    ),
    "3.2": (
        "0:0-9 1:0-13 2:0-7 3:0-12 4:0-6 5:0-3 6:0-7 7:0-3 8:0-8 9:0-8 10:0-4 11:0-9 12:0-4 13:0-5 14:0-5 15:0-5 "
        "16:0-4 17:0-1 18:0-3 19:0-7 20:0-6 21:0-2 22:0-4 23:0-4 24:0-3 25:0-3 26:0-3 27:0-1 28:0-3 29:0-2 30:0-2 "
        "31:0-2 32:0-4 33:0-2 34:0-2 35:0-3 36:0-2 37:0-3 38:0-2 39:0-2 40:0-2 41:0-2 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0 48:0-1 49:0-1 50:0 51:0 56:0-1 57:0 60:0 61:0 65:0 66:0 67:0"
    ),
    "3.3": (
        "0:0-9 1:0-13 2:0-7 3:0-12 4:0-6 5:0-3 6:0-7 7:0-3 8:0-8 9:0-8 10:0-4 11:0-9 12:0-4 13:0-5 14:0-5 15:0-5 "
        "16:0-4 17:0-1 18:0-3 19:0-7 20:0-6 21:0-2 22:0-4 23:0-4 24:0-3 25:0-3 26:0-3 27:0-1 28:0-3 29:0-3 30:0-3 "
        "31:0-3 32:0-4 33:0-2 34:0-2 35:0-4 36:0-2 37:0-3 38:0-3 39:0-2 40:0-2 41:0-3 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0 48:0-1 49:0-1 50:0 51:0 56:0-2 57:0-1 60:0 61:0 65:0 66:0 67:0"
    ),
    "3.4": (
        "0:0-9 1:0-13 2:0-7 3:0-12 4:0-7 5:0-4 6:0-8 7:0-3 8:0-8 9:0-8 10:0-4 11:0-9 12:0-4 13:0-5 14:0-5 15:0-5 "
        "16:0-4 17:0-1 18:0-3 19:0-7 20:0-6 21:0-2 22:0-4 23:0-4 24:0-3 25:0-3 26:0-3 27:0-1 28:0-3 29:0-3 30:0-3 "
        "31:0-3 32:0-4 33:0-2 34:0-2 35:0-4 36:0-2 37:0-3 38:0-3 39:0-2 40:0-2 41:0-3 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0 48:0-1 49:0-1 50:0 51:0 56:0-2 57:0-1 58:0 60:0 61:0 65:0 66:0 67:0"
    ),
    "3.5": (
        "0:0-9 1:0-15 2:0-8 3:0-12 4:0-7 5:0-4 6:0-8 7:0-3 8:0-8 9:0-8 10:0-4 11:0-9 12:0-4 13:0-5 14:0-5 15:0-5 "
        "16:0-4 17:0-1 18:0-3 19:0-7 20:0-6 21:0-2 22:0-4 23:0-4 24:0-3 25:0-3 26:0-3 27:0-1 28:0-3 29:0-3 30:0-3 "
        "31:0-3 32:0-4 33:0-2 34:0-2 35:0-4 36:0-2 37:0-3 38:0-3 39:0-2 40:0-2 41:0-3 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0 48:0-1 49:0-1 50:0 51:0 56:0-3 57:0-1 58:0 60:0 61:0 65:0 66:0 67:0"
    ),
    "3.6": (
        "0:0-9 1:0-15 2:0-8 3:0-12 4:0-7 5:0-4 6:0-8 7:0-3 8:0-8 9:0-8 10:0-4 11:0-9 12:0-4 13:0-5 14:0-5 15:0-5 "
        "16:0-4 17:0-1 18:0-3 19:0-7 20:0-6 21:0-2 22:0-4 23:0-4 24:0-4 25:0-3 26:0-3 27:0-1 28:0-3 29:0-3 30:0-3 "
        "31:0-3 32:0-4 33:0-2 34:0-2 35:0-4 36:0-2 37:0-3 38:0-3 39:0-2 40:0-2 41:0-3 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0 48:0-1 49:0-1 50:0 51:0 56:0-3 57:0-1 58:0 60:0 61:0 65:0 66:0 67:0"
    ),
    "3.7": (
        "0:0-10 1:0-16 2:0-8 3:0-12 4:0-7 5:0-4 6:0-8 7:0-3 8:0-9 9:0-9 10:0-4 11:0-9 12:0-4 13:0-5 14:0-5 15:0-5 "
        "16:0-4 17:0-1 18:0-3 19:0-7 20:0-6 21:0-2 22:0-4 23:0-4 24:0-4 25:0-3 26:0-3 27:0-1 28:0-3 29:0-3 30:0-3 "
        "31:0-3 32:0-4 33:0-2 34:0-2 35:0-4 36:0-2 37:0-3 38:0-3 39:0-2 40:0-2 41:0-3 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0 48:0-1 49:0-1 50:0 51:0 56:0-3 57:0-1 58:0 60:0-1 61:0 65:0 66:0 67:0 68:0"
    ),
    "3.8": (
        "0:0-11 1:0-16 2:0-8 3:0-12 4:0-7 5:0-4 6:0-8 7:0-3 8:0-9 9:0-9 10:0-5 11:0-9 12:0-4 13:0-5 14:0-5 15:0-5 "
        "16:0-5 17:0-1 18:0-3 19:0-7 20:0-6 21:0-2 22:0-5 23:0-4 24:0-5 25:0-4 26:0-4 27:0-1 28:0-4 29:0-3 30:0-3 "
        "31:0-3 32:0-4 33:0-2 34:0-2 35:0-4 36:0-2 37:0-3 38:0-3 39:0-2 40:0-2 41:0-3 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0 48:0-1 49:0-1 50:0 51:0 56:0-3 57:0-1 58:0 60:0-1 61:0 65:0 66:0-1 67:0 68:0 69:0"
    ),
    "3.9": (
        "0:0-11 1:0-17 2:0-9 3:0-12 4:0-7 5:0-4 6:0-8 7:0-3 8:0-9 9:0-9 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-5 "
        "16:0-5 17:0-1 18:0-4 19:0-7 20:0-6 21:0-2 22:0-5 23:0-4 24:0-5 25:0-4 26:0-4 27:0-1 28:0-4 29:0-3 30:0-3 "
        "31:0-3 32:0-4 33:0-2 34:0-2 35:0-4 36:0-2 37:0-3 38:0-3 39:0-2 40:0-2 41:0-3 42:0-2 43:0-2 44:0-1 45:0 46:0 "
        "47:0 48:0-1 49:0-1 50:0 51:0 56:0-3 57:0-1 58:0 60:0-1 61:0 65:0 66:0-1 67:0 68:0 69:0"
    ),
    "4.0": (
        "0:3-12 1:4-17 2:1-10 3:0-13 8:2-9 9:1-9 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-4 "
        "19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1 28:0-5 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 "
        "34:1-2 35:1-4 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0 46:0 47:0 48:0-1 49:0-1 "
        "50:0 51:0 55:0-2 57:0-2 60:0-2 61:0 64:0 65:0 66:0-1 68:0-1 69:0-1 71:0 72:0 74:0 75:0 80:0 81:0"
    ),
    "4.1": (
        "0:3-13 1:4-18 2:1-10 3:0-13 8:2-9 9:1-9 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-4 "
        "19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1 28:0-5 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 "
        "34:1-2 35:1-4 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-1 46:0 47:0 48:0-1 49:0-1 "
        "50:0 51:0 55:0-2 57:0-2 60:0-2 61:0 64:0 65:0 66:0-2 68:0-1 69:0-1 71:0 72:0 74:0-1 75:0 76:1 77:1 78:1 79:1 "
        "80:0 81:0 83:0 84:0 85:0 86:0 87:0 90:0 91:0 92:0"
    ),
    "4.2": (
        "0:3-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-4 "
        "19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-5 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 "
        "34:1-2 35:1-4 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-1 46:0 47:0 48:0-1 49:0-1 "
        "50:0 51:0 55:0-2 57:0-2 60:0-2 61:0 64:0 65:0 66:0-2 68:0-1 69:0-1 71:0 72:0 74:0-1 75:0 76:1 77:1 78:1-2 "
        "79:1-2 80:0-1 81:0 83:0 84:0 85:0-1 86:0 87:0-1 88:0 89:0 90:0-1 91:0 92:0"
    ),
    "4.3": (
        "0:3-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-4 "
        "19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-5 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 "
        "34:1-2 35:1-5 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-1 46:0 47:0 48:0-1 49:0-1 "
        "50:0 51:0 55:0-2 57:0-2 60:0-2 61:0 64:0 65:0 66:0-2 68:0-1 69:0-1 71:0 72:0 74:0-1 75:0 76:1 77:1 78:1-2 "
        "79:1-2 80:0-1 81:0 83:0 84:0 85:0-1 86:0 87:0-1 88:0 89:0 90:0-1 91:0 92:0"
    ),
    "4.4": (
        "0:3-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-5 "
        "19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-6 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 "
        "34:1-2 35:1-5 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-3 43:0-2 44:0-1 45:0-1 46:0 47:0 48:0-1 49:0-1 "
        "50:0 51:0 55:0-2 57:0-2 60:0-2 61:0 64:0 65:0 66:0-2 68:0-1 69:0-1 71:0 72:0 74:0-1 75:0 76:1 77:1 78:1-2 "
        "79:1-2 80:0-1 81:0 83:0 84:0 85:0-1 86:0 87:0-1 88:0-1 89:0-1 90:0-1 91:0 92:0 93:0 94:0"
    ),
}

Versions = tuple[int, int]


def _parsed(text: str) -> Mapping[int, Versions]:
    rows = {}
    for row in text.split():
        key, _, versions = row.partition(":")
        first, _, last = versions.partition("-")
        rows[int(key)] = int(first), int(last or first)
    return MappingProxyType(rows)


_DEFAULTS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("4.0", {"num.recovery.threads.per.data.dir": "1", "log.message.timestamp.after.max.ms": str(2**63 - 1)}),
    ("2.5", {"message.max.bytes": "1000012", "replica.lag.time.max.ms": "10000"}),
    ("2.3", {"group.max.session.timeout.ms": "300000"}),
    ("2.0", {"offsets.retention.minutes": "1440"}),
    ("0.11.0", {"unclean.leader.election.enable": "true", "group.initial.rebalance.delay.ms": "0"}),
    ("0.10.0", {"group.max.session.timeout.ms": "30000"}),
    ("0.9.0", {"log.cleaner.enable": "false"}),
    ("0.8.2", {"offset.metadata.max.bytes": "1024", "auto.leader.rebalance.enable": "false"}),
)
"""Defaults of the releases before each of these, which later releases changed; the newest first."""

_LIMITS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("4.3", {"share.coordinator.snapshot.update.records.per.snapshot": "0.."}),
    ("4.2", {"group.coordinator.append.linger.ms": "0..", "share.coordinator.append.linger.ms": "0.."}),
    (
        "4.1",
        {
            "controller.quorum.append.linger.ms": "",
            "controller.quorum.election.backoff.max.ms": "",
            "controller.quorum.election.timeout.ms": "",
            "controller.quorum.fetch.timeout.ms": "",
            "controller.quorum.request.timeout.ms": "",
            "controller.quorum.retry.backoff.ms": "",
            "group.coordinator.rebalance.protocols": "consumer|classic|share",
            "metadata.log.segment.bytes": "12..",
        },
    ),
    (
        "4.0",
        {
            "group.share.max.size": "10..1000",
            "group.share.record.lock.duration.ms": "1000..60000",
            "remote.log.manager.copier.thread.pool.size": "-1, 1..",
            "remote.log.manager.expiration.thread.pool.size": "-1, 1..",
        },
    ),
    ("3.9", {"group.coordinator.rebalance.protocols": "consumer|classic"}),
)
"""Values that were allowed for broker settings in the releases before each of these, the newest first; as in `tables`."""

_TOPIC_LIMITS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("4.1", {"segment.bytes": "14.."}),
    ("3.3", {"flush.messages": "0..", "segment.index.bytes": "0.."}),
)
"""The same of topic settings; each has allowed more the older the release is."""

_SINCE_4_4 = frozenset((
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.group.enable",
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.topic.name.prefix",
    "group.share.dlq.manager.class.name",
    "group.streams.acceptable.recovery.lag",
    "group.streams.assignors",
    "group.streams.max.warmup.replicas",
    "group.streams.min.task.offset.interval.ms",
    "group.streams.num.warmup.replicas",
    "group.streams.rack.aware.assignment.tags",
    "group.streams.task.offset.interval.ms",
    "group.streams.topology.description.plugin.class",
    "log.remote.copy.lag.bytes",
    "log.remote.copy.lag.ms",
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer",
    "streams.acceptable.recovery.lag",
    "streams.assignor.name",
    "streams.num.warmup.replicas",
    "streams.rack.aware.assignment.tags",
    "streams.task.offset.interval.ms",
))  # fmt: skip
"""Settings of brokers, topics and groups that there are since Kafka 4.4."""

NAMES = tuple(_RELEASES)
"""All releases that are known, the oldest first; each is the name of a line, as in `2.8` or `0.10.2`."""


def versions_of(name: str) -> Mapping[int, Versions]:
    """Return (first, last) version by API key of a release. Raises KeyError."""
    return _parsed(_RELEASES[name])


def named(text: str) -> str:
    """Return the release named by `2.8`, `2.8.1` or `0.10.2.1`. Raises ValueError with the known ones."""
    parts = text.strip().removeprefix("v").split(".")
    name = ".".join(parts[: 3 if parts[0] == "0" else 2])
    if name not in _RELEASES or not all(part.isdigit() for part in parts):
        raise ValueError(f"{text!r} is no release of Apache Kafka that is known here: {', '.join(NAMES)}")
    return name


def is_at_least(name: str, other: str) -> bool:
    """Return whether a release is `other` or a later one; so is a broker without a release, such as the empty name."""
    return name not in _RELEASES or NAMES.index(name) >= NAMES.index(other)


def has_finite_quotas(name: str) -> bool:
    """Return whether a release refuses a client quota that is infinite; empty for the newest."""
    return is_at_least(name, "4.4")


def knows_networks(name: str) -> bool:
    """Return whether the host of an ACL may be a network in a release (KIP-1276); empty for the newest."""
    return is_at_least(name, "4.4")


def verifies_tokens(name: str) -> bool:
    """Return whether a release needs the audience and the issuer of tokens; empty for the newest."""
    return is_at_least(name, "4.4")


def bounds_growth(name: str) -> bool:
    """Return whether a release refuses CreatePartitions as a whole for too many; empty for the newest."""
    return is_at_least(name, "4.4")


def first_with_offset_interval(name: str) -> int:
    """Return the first StreamsGroupHeartbeat with the interval of offset reports in its response; empty for the newest."""
    return 0 if is_at_least(name, "4.4") else 1


def refuses_repeated_items(name: str) -> bool:
    """Return whether a release refuses lists of brokers' settings with an item twice; empty for the newest."""
    return is_at_least(name, "4.4")


def has_setting(name: str, setting: str) -> bool:
    """Return whether a release has a setting that is in the tables; empty for the newest, which has all."""
    return setting not in _SINCE_4_4 or is_at_least(name, "4.4")


def defaults_of(name: str) -> dict[str, str]:
    """Return the defaults of a release that are not today's, for settings that have an effect here."""
    return _before(name, _DEFAULTS)


def limits_of(name: str) -> dict[str, str]:
    """Return the limits of a release for broker settings, where they differ from today's."""
    return _before(name, _LIMITS)


def topic_limits_of(name: str) -> dict[str, str]:
    """Return the limits of a release for topic settings, where they differ from today's."""
    return _before(name, _TOPIC_LIMITS)


def _before(name: str, table: tuple[tuple[str, Mapping[str, str]], ...]) -> dict[str, str]:
    texts_before: dict[str, str] = {}
    for since, texts in table:
        if not is_at_least(name, since):
            texts_before |= texts
    return texts_before
