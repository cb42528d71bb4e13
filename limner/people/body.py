"""The body: a jointed figure in space, posed, turned and projected onto the picture.

In the body's own frame X goes to its left, Y up and Z forward; the body is one unit high and stands on
Y = 0. Turned by `yaw` (degrees: 0 faces the camera, 90 looks to the right of the picture, 180 shows the back)
and seen by a camera that looks slightly down, so that a nearer foot stands lower in the picture.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from jaxtyping import Float

Side = Literal["left", "right"]
SIDES: Final[tuple[Side, Side]] = ("left", "right")
VIEWPOINTS: Final = {
    "front": 0,
    "back": 180,
    "side": 90,
    "three-quarter front": 40,
    "three-quarter back": 140,
}

_THIGH, _SHIN, _ANKLE = 0.235, 0.225, 0.042
_UPPER_ARM, _FOREARM = 0.165, 0.150
_HIP_HEIGHT = _THIGH + _SHIN + _ANKLE
_LOOK_DOWN = 0.13


@dataclass(frozen=True, slots=True)
class Build:
    """Proportions, in body heights: half widths from the front (`wide`) and from the side (`deep`)."""

    shoulders: float
    chest_deep: float
    waist: float
    hips: float
    hips_deep: float
    limb: float
    head: float

    @classmethod
    def sample(cls, sex: str, rng: np.random.Generator) -> "Build":
        """Proportions of a man or a woman with a little variation."""
        stout = float(rng.uniform(0.94, 1.12))
        if sex == "man":
            return cls(0.122 * stout, 0.078 * stout, 0.090 * stout, 0.092 * stout, 0.080, 1.0 * stout, 1.1)
        return cls(0.108 * stout, 0.076 * stout, 0.076 * stout, 0.098 * stout, 0.086, 0.9 * stout, 1.08)


@dataclass(frozen=True, slots=True)
class Pose:
    """How a person stands in one view.

    - `yaw`: degrees, see the module; `height`: of the body in pixels; `x`, `ground`: where it stands, in pixels.
    - `stride`: 0 stands, about 0.5 walks briskly (radians of leg swing); `phase`: of the step, radians.
    - `busy`: what each hand does: "hang", "hold" (at the chest), "lift" (an umbrella), "raise" (at the ear),
      "carry" (arm down), "pull", "lead" (a dog).
    """

    yaw: float
    height: float
    x: float
    ground: float
    stride: float
    phase: float
    busy: dict[Side, str]
    spread: float = 0.1

    @property
    def walking(self) -> bool:
        """True if a viewer would say that the person walks."""
        return self.stride > 0.3


class Body:
    """A posed body: joints in space (`joints`), and their places in the picture."""

    def __init__(self, build: Build, pose: Pose) -> None:
        self.build, self.pose = build, pose
        angle = np.radians(pose.yaw)
        self._cos, self._sin = float(np.cos(angle)), float(np.sin(angle))
        self.joints = self._pose_joints()

    def spot(self, x: float, y: float, z: float) -> tuple[float, float]:
        """Place in the picture of a point of the body's frame."""
        right = x * self._cos + z * self._sin
        nearer = z * self._cos - x * self._sin
        scale = self.pose.height
        return self.pose.x + scale * right, self.pose.ground - scale * (y - _LOOK_DOWN * nearer)

    def joint(self, name: str) -> tuple[float, float]:
        """Place in the picture of a joint, e.g. "left knee"."""
        x, y, z = self.joints[name]
        return self.spot(float(x), float(y), float(z))

    def nearness(self, name: str) -> float:
        """How much nearer to the camera than the middle of the body a joint is, in body heights."""
        x, _, z = self.joints[name]
        return float(z) * self._cos - float(x) * self._sin

    def half_width(self, wide: float, deep: float) -> float:
        """Half width in pixels, as seen, of an oval `wide` from the front and `deep` from the side."""
        return self.pose.height * float(np.hypot(wide * self._cos, deep * self._sin))

    @property
    def facing(self) -> float:
        """1 towards the camera, 0 sideways, −1 away."""
        return self._cos

    @property
    def heading(self) -> float:
        """1 towards the right of the picture, −1 towards the left."""
        return self._sin

    @property
    def unit(self) -> float:
        """Pixels of one body height."""
        return self.pose.height

    def arm_in_front(self, side: Side) -> bool:
        """True if an arm is nearer to the camera than the trunk."""
        near = self.nearness(f"{side} elbow") + self.nearness(f"{side} hand")
        return near > -0.05

    def _pose_joints(self) -> dict[str, Float[np.ndarray, "3"]]:
        pose, build = self.pose, self.build
        joints: dict[str, Float[np.ndarray, "3"]] = {}
        lowest = np.inf
        for side in SIDES:
            sign = 1 if side == "left" else -1
            swing = sign * pose.stride * float(np.sin(pose.phase))
            moving_forward = max(0.0, sign * float(np.cos(pose.phase)))
            bend = 0.12 * pose.stride + 0.9 * pose.stride * moving_forward
            hip = np.array([sign * build.hips * 0.52, _HIP_HEIGHT, 0.0])
            knee = hip + _THIGH * _down(swing + bend * 0.3, sign * 0.015)
            ankle = knee + _SHIN * _down(swing - bend * 0.7, 0.0)
            pitch = -0.5 * max(0.0, -swing) - 0.3 * bend
            toe = ankle + np.array([sign * 0.018, -0.024 + 0.1 * pitch, 0.082])
            joints |= {f"{side} hip": hip, f"{side} knee": knee, f"{side} ankle": ankle, f"{side} toe": toe}
            lowest = min(lowest, float(ankle[1]) - _ANKLE)
            joints |= self._pose_arm(side, sign)
        # The standing foot stays on the ground: a long step lowers the trunk, as it does in walking.
        drop = np.array([0.0, -lowest, 0.0])
        joints = {name: place + drop for name, place in joints.items()}
        return joints | {
            "crotch": np.array([0.0, 0.475, 0.0]) + drop,
            "hips": np.array([0.0, 0.52, 0.0]) + drop,
            "waist": np.array([0.0, 0.61, 0.0]) + drop,
            "chest": np.array([0.0, 0.72, 0.0]) + drop,
            "neck": np.array([0.0, 0.835, 0.004]) + drop,
            "head": np.array([0.0, 0.918, 0.014]) + drop,
        }

    def _pose_arm(self, side: Side, sign: int) -> dict[str, Float[np.ndarray, "3"]]:
        pose = self.pose
        swing = -0.75 * sign * pose.stride * float(np.sin(pose.phase))
        out, bend, inward = pose.spread, 0.22 + 0.3 * pose.stride, 0.0
        match pose.busy[side]:
            case "hold":
                swing, bend, inward = 0.22, 1.55, 0.35
            case "lift":
                swing, bend, out, inward = 0.15, 1.75, pose.spread + 0.1, -0.1
            case "raise":
                swing, bend, out, inward = 0.55, 2.25, pose.spread + 0.12, 0.12
            case "carry":
                swing, bend, out = swing * 0.3, 0.06, pose.spread + 0.06
            case "pull":
                swing, bend, out = -0.38, 0.1, pose.spread + 0.1
        shoulder = np.array([sign * self.build.shoulders * 0.80, 0.797, 0.0])
        elbow = shoulder + _UPPER_ARM * _down(swing, sign * out)
        hand = elbow + _FOREARM * _down(swing + bend, sign * (out * 0.6 - inward))
        return {f"{side} shoulder": shoulder, f"{side} elbow": elbow, f"{side} hand": hand}


def _down(forward: float, outward: float) -> Float[np.ndarray, "3"]:
    """Unit vector that hangs down, swung forward and outward by angles in radians."""
    return np.array([np.sin(outward), -np.cos(forward) * np.cos(outward), np.sin(forward) * np.cos(outward)])
