# What Blender does on both allocators: a generated scene, its modifiers, and pictures of it by Cycles on the processor, each with
# other materials; the last lines are the pictures' digests. Run by `blender --background --python`.
import hashlib
import math
import sys

import bpy

SAMPLES, SIZE, PICTURES = 8, (96, 64), 3
folder = sys.argv[sys.argv.index("--") + 1]


def material(number):
    """A principled shader with textures, whose nodes are compiled for each picture."""
    made = bpy.data.materials.new(f"material {number}")
    made.use_nodes = True
    nodes, links = made.node_tree.nodes, made.node_tree.links
    shader, noise = nodes["Principled BSDF"], nodes.new("ShaderNodeTexNoise")
    noise.inputs["Scale"].default_value = 3 + number
    shader.inputs["Roughness"].default_value = number % 5 / 5
    shader.inputs["Metallic"].default_value = number % 3 / 3
    links.new(noise.outputs["Color"], shader.inputs["Base Color"])
    return made


def thing(number):
    """A body with modifiers; its mesh is made anew for each picture."""
    place = (math.cos(number) * 3, math.sin(number) * 3, number % 4)
    if number % 2:
        bpy.ops.mesh.primitive_ico_sphere_add(subdivisions=3, location=place)
    else:
        bpy.ops.mesh.primitive_monkey_add(location=place)
    body = bpy.context.object
    body.modifiers.new("smooth", "SUBSURF").render_levels = 2
    body.modifiers.new("rows", "ARRAY").count = 2
    body.data.materials.append(material(number))
    return body


def digest(path):
    picture = bpy.data.images.load(path)
    values = bytes(int(value * 255 + 0.5) for value in picture.pixels[:])
    bpy.data.images.remove(picture)
    return len(set(values)), hashlib.sha256(values).hexdigest()


bpy.ops.wm.read_factory_settings(use_empty=True)
scene = bpy.context.scene
scene.render.engine = "CYCLES"
scene.cycles.device, scene.cycles.samples, scene.cycles.seed, scene.cycles.use_denoising = "CPU", SAMPLES, 1, False
scene.render.threads_mode, scene.render.threads = "FIXED", 4
scene.render.resolution_x, scene.render.resolution_y = SIZE
bpy.ops.object.light_add(type="SUN", rotation=(0.5, 0.3, 0))
bpy.ops.object.camera_add(location=(0, -14, 7), rotation=(math.radians(65), 0, 0))
scene.camera = bpy.context.object
bodies = [thing(number) for number in range(8)]
results = []
for picture in range(PICTURES):
    for number, body in enumerate(bodies):
        body.data.materials[0] = material(number + picture * len(bodies))
    scene.render.filepath = f"{folder}/picture{picture}.png"
    bpy.ops.render.render(write_still=True)
    results.append(digest(scene.render.filepath))
for colours, value in results:
    print(f"picture of {colours} values: {value}")
